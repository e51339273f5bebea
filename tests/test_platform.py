"""Windows and macOS: every module is imported, and a small real thing is done, where what they lack is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from privacy import machine
from tests.caches import new_cache
from tests.contract import bundles

ROOT = Path(__file__).resolve().parents[1]
IMPORT_ALL = """
import importlib, pkgutil
names = []
for room in ("privacy", "edge", "cloud", "export", "edgefr"):
    package = importlib.import_module(room)
    names += [room, *(found.name for found in pkgutil.walk_packages(package.__path__, f"{room}."))]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # an extra that has an environment of its own (docs/howto-flower.md)
        if not (error.name == "flwr" and name.startswith("edgefr.serving.flower.")):
            raise
print(len(names))
"""
ON_A_DEVICE = """
from edge import Device
from edge.recommender import Recommender
from privacy.errors import InputError
print(len(Recommender({bundle!r}).recommend(3, history=["i1"])))
device = Device({bundle!r}, {state!r})
device.practise(["i1", "i3"])
print(len(device.recommend(2)))
try:
    Device({bundle!r}, {state!r}, max_ram_mb=500)
except InputError as error:
    print(error)
"""
SIMULATED = """
import edgefr
small = ["data_options.users=40", "data_options.items=120", "rounds=2", "method=fedmf", "model.dim=4"]
experiment = edgefr.load_experiment(overrides=[*small, "protocol.negatives=20"])
run = edgefr.simulate(experiment, "devices.yaml", out={out!r}, bundles=False, page=False, checkpoint_every=1)
print(run.summary["engine"]["peak_rss_mb"], (run.path / "checkpoint").is_dir())
"""


def without(script: str, cache: Path, *libraries: str) -> list[str]:
    """What a script prints where POSIX is taken away."""
    command = [sys.executable, str(ROOT / "tests" / "without_posix.py"), script, *libraries]
    surroundings = os.environ | {"EDGEFR_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_module_is_imported_and_a_device_and_a_run_work(tmp_path: Path) -> None:
    bundle, cache = bundles.bundle("fedmf"), new_cache(tmp_path / "cache")
    device = ON_A_DEVICE.format(bundle=str(bundle), state=str(tmp_path / "state"))
    found = without(IMPORT_ALL + device + SIMULATED.format(out=str(tmp_path / "run")), cache)
    modules, recommended, again, refused, run = found
    assert int(modules) > 300
    assert (recommended, again) == ("3", "2")
    assert refused == "max_ram_mb cannot be kept: this system does not tell how much memory a process has"
    assert run == "0.0 True"


@pytest.mark.parametrize(
    "script",
    ["import resource", "import os; os.sched_getaffinity(0)", "import signal; signal.SIGKILL", "import fcntl"],
)
def test_what_is_taken_away_is_missed(script: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"ModuleNotFoundError|AttributeError"):
        without(script, tmp_path, "numpy")


def test_macos_tells_the_peak_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=250_000_000))
    monkeypatch.setattr(machine, "PROCESS", Path("no-such-folder"))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "resource", told)
    assert machine.peak_mb() == machine.resident_mb() == 250.0


def test_linux_tells_both_and_the_peak_is_not_below() -> None:
    present, peak = machine.resident_mb(), machine.peak_mb()
    assert present is not None
    assert peak is not None
    assert 10 < present <= peak * 1.05


class Windows:
    """Stands in for `msvcrt`: one lock of one byte, which another handle cannot take."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    def locking(self, handle: int, mode: int, count: int) -> None:
        place = os.lseek(handle, 0, os.SEEK_CUR)
        if (mode, count) != (self.LK_NBLCK, 1) or place in self.held:
            raise PermissionError(13, "Permission denied")
        self.held[place] = handle


def test_a_file_is_held_by_one_on_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Windows())
    path = tmp_path / "record.json"
    path.write_text("{}", encoding="utf-8")
    handle = machine.hold(path)
    with pytest.raises(BlockingIOError):
        machine.hold(path)
    assert path.read_text(encoding="utf-8") == "{}", "what is held can be read, and is as it was"
    os.close(handle)


def test_a_pipe_takes_what_its_encoding_lacks(tmp_path: Path) -> None:
    from edgefr.cli.app import _listened

    with open(tmp_path / "pipe", "w", encoding="cp1252") as pipe:
        stream = _listened(pipe)
        stream.write("ε is 8 – at most\n")
        stream.flush()
    assert (tmp_path / "pipe").read_bytes() == "? is 8 – at most\n".encode("cp1252")


def test_a_file_is_held_until_it_is_closed(tmp_path: Path) -> None:
    handle = machine.hold(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        machine.hold(tmp_path / "lock")
    os.close(handle)
    os.close(machine.hold(tmp_path / "lock"))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no lock that several look at once by")
def test_who_looks_whether_a_file_is_held_is_taken_for_nobody_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not machine.is_held(path), "there is no such file"
    assert not path.exists()
    handle = machine.hold(path)
    assert machine.is_held(path)
    os.close(handle)
    with ThreadPoolExecutor(3) as pool:
        looks = [pool.submit(lambda: [machine.is_held(path) for _ in range(1000)]) for _ in range(3)]
        assert not any(any(look.result()) for look in looks)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is glibc on Linux alone")
def test_freed_memory_goes_back_to_the_system() -> None:
    arrays = [np.ones(1000) for _ in range(20_000)]  # 160 MB in small parts
    arrays = arrays[::1000]  # so that the heap cannot shrink by itself
    before = machine.resident_mb() or 0.0
    assert machine.give_back()
    assert before - (machine.resident_mb() or 0.0) > 100
    assert len(arrays) == 20


def test_a_library_without_it_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not machine.give_back()
