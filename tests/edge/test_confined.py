"""Small bundles that would take gigabytes or minutes end a device's command in one line, within its limits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge import limited_process
from edge.device import Device
from edge.graph import Watch
from edge.limited_process import BEFORE, Limits
from edge.policy import OPEN, Policy
from privacy.errors import InputError
from tests.cli.commands import COMMAND, PROGRESS, ROOT, environment, hear_interrupts
from tests.contract import bundles
from tests.devices import POLICY, policy_file
from tests.edge.folders import resign
from tests.edge.hostile_bundles import HOSTILE, LARGER, SLOW, empty_nodes, made, wide_table

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems bound less, or nothing")

RAM_MB, SECONDS, STARTING = 400, 10, 10
"""The limits, and how long a command may take to start on a busy machine."""
MEASURED = """
import resource, subprocess, sys, time
began = time.monotonic()
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6, time.monotonic() - began)
"""
SAYS = {
    "16 M empty nodes": "it has more than 400,000 fields",
    "a table of 60 x 800,000": "more memory is needed than --max-ram-mb 400 allows",
    "a table of 60 x 2,000,000": "its trained tables take 480 MB, more than max_ram_mb 400 allows",
    "a sequence of 4 M": "it has the operator 'SplitToSequence', which no graph of a device has",
    "a product of 12000^2": "fails in onnxruntime under --max-ram-mb 400",
    "a slow product": "ended: it took longer than --max-seconds 3 allows",
    "ids with 60 MB of space": "ids.json has 62,915,641 bytes, more than the",
    "a config with 100 MB of space": "bytes, more than the 1,048,576 that such a file may have",
    "300 empty files": "lists more files than a bundle has",
}


def learn(bundle: Path, folder: Path, *limits: str) -> list[str]:
    state = ["--state", str(folder / "state"), "--item", "i1", "--policy", str(policy_file(folder))]
    return [*COMMAND, "device", "learn", str(bundle), *state, *limits]


def refused(done: subprocess.CompletedProcess[str], says: str) -> None:
    """A command measured itself: two numbers within the limits, exit code 2, one line."""
    code, megabytes, seconds = done.stdout.split()
    (line,) = PROGRESS.sub("", done.stderr).splitlines()
    assert (code, line[:7]) == ("2", "error: "), done
    assert says in line
    assert float(megabytes) < RAM_MB
    assert float(seconds) < SECONDS + STARTING


def measured(command: list[str], cache: Path) -> subprocess.CompletedProcess[str]:
    """Run a command from a small process: its peak would start from ours."""
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    whole = [sys.executable, "-c", MEASURED, *command]
    return subprocess.run(whole, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=200)


def run(script: str, *given: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a script of Python in a process of its own."""
    surroundings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    whole = [sys.executable, "-c", script, *given]
    return subprocess.run(whole, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=100, **how)


@pytest.mark.parametrize("name", [*HOSTILE, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGER)])
def test_a_small_bundle_takes_no_more_than_its_limits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, seconds = made((HOSTILE | LARGER)[name], tmp_path), 3 if name == "a slow product" else SECONDS
    assert bundle.stat().st_size < 1_000_000
    limits = ("--max-ram-mb", str(RAM_MB), "--max-seconds", str(seconds))
    monkeypatch.setenv("RUST_BACKTRACE", "1")  # which waits for ever where there is no memory
    refused(measured(learn(bundle, tmp_path, *limits), tmp_path / "cache"), SAYS[name])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["recommend", "learn"])
def test_a_policy_has_the_same_limits(command: str, tmp_path: Path) -> None:
    bundle = made(wide_table(4_000_000), tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "policy.yaml").write_text(f"{POLICY}max_ram_mb: {RAM_MB}\nmax_seconds: {SECONDS}\n")
    whole = [*COMMAND, "device", command, str(bundle), "--state", str(tmp_path / "state")]
    refused(measured(whole, tmp_path / "cache"), "its trained tables take 960 MB, more than max_ram_mb 400 allows")


@pytest.mark.slow
def test_an_honest_device_learns_and_recommends_within_its_limits(tmp_path: Path) -> None:
    limits = ("--max-ram-mb", str(RAM_MB), "--max-seconds", "60")
    for _ in range(2):
        done = measured(learn(bundles.bundle("fedmf"), tmp_path, *limits), tmp_path / "cache")
        assert done.stdout.split()[-3] == "0", done
        assert "3 of 3" in done.stdout


@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT, signal.SIGCHLD])
def test_what_who_started_it_ignores_is_ignored(ignored: signal.Signals) -> None:
    """`nohup`, a script's background job, and supervisors that reap nobody."""
    script = """
import os, signal, sys
from edge.limited_process import confine
confine(None, 60, lambda: None)
if (sent := signal.Signals(int(sys.argv[1]))) != signal.SIGCHLD:
    os.kill(os.getppid(), sent)
    os.kill(os.getpid(), sent)
print("done")
"""
    done = run(script, str(int(ignored)), preexec_fn=lambda: signal.signal(ignored, signal.SIG_IGN))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("value", ["inf", "nan", "1e30", "0", "-1"])
def test_limits_are_numbers_that_a_system_counts(value: str) -> None:
    for name in ("ram_mb", "seconds"):
        with pytest.raises(InputError, match="must be above 0 and at most 1,000,000,000"):
            Limits(**{name: float(value)})
    with pytest.raises(ValueError, match="max_seconds"):
        Policy.model_validate({"max_seconds": float(value)})


def test_a_thread_that_could_not_start_is_started_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, start = Watch(), threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(RuntimeError):
        watch.begin(SimpleNamespace(terminate=False))
    monkeypatch.setattr(threading.Thread, "start", start)
    assert not watch._runs
    watch.end(watch.begin(SimpleNamespace(terminate=False)))
    assert watch._thread is not None
    assert watch._thread.is_alive()


def test_too_little_memory_for_any_bundle_is_told(tmp_path: Path) -> None:
    done = measured(learn(bundles.bundle("fedmf"), tmp_path, "--max-ram-mb", "20"), tmp_path / "cache")
    refused(done, "MB are taken before a bundle is opened; give more")


ROUND = """
import sys
from pathlib import Path
from edge.device import Device
from edge.policy import Policy
from edgefr.cli.device import confined
state = Path(sys.argv[2])
confined(state, None, 3, resumes=True)
device = Device(sys.argv[1], state, policy=Policy())
print(device.learn(["i1"]).round, device.work["failed"])
"""


def test_a_round_that_a_limit_ended_is_released_as_noise_by_the_next_child(tmp_path: Path) -> None:
    """Whether an upload comes at all would tell what a graph met: the round was charged."""
    bundle = shutil.copytree(bundles.promising("fedmf", 4.0, 10), tmp_path / "bundle")
    SLOW(bundle)
    resign(bundle)
    done = run(ROUND, str(bundle), str(tmp_path / "state"))
    assert done.stdout == f"{bundles.ROUND} its training was cut off before it ended\n", done


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_child(sent: signal.Signals, tmp_path: Path) -> None:
    script = """
import os, time
from edge.limited_process import confine
confine(None, 60, lambda: None)
print(os.getpid(), flush=True)
time.sleep(60)
"""
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)}
    whole = [sys.executable, "-c", script]
    with subprocess.Popen(
        whole, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(sent)
        assert process.wait(20) == -sent
    deadline = time.monotonic() + 10
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        while "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_training_stops_before_the_system_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(limited_process.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(limited_process, "NOW", limited_process.NOW.__class__(seconds=10, until=110))
    ask = Limits(seconds=30).start()
    now[0] = 100 + 10 * BEFORE - 0.1
    assert ask() is None
    now[0] = 100 + 10 * BEFORE + 0.1
    assert ask() == "time"


def test_time_is_up_after_its_seconds_and_not_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(limited_process.time, "monotonic", lambda: now[0])
    exceeded = Limits(seconds=5).start()
    for later, expected in ((0.0, None), (5.0, None), (5.5, "time")):
        now[0] = 100.0 + later
        assert exceeded() == expected


def test_memory_is_exceeded_above_its_megabytes_and_not_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [40.0]
    monkeypatch.setattr(limited_process, "resident_mb", lambda: used[0])
    exceeded = Limits(ram_mb=50).start()
    for megabytes, expected in ((40.0, None), (50.0, None), (50.5, "memory")):
        used[0] = megabytes
        assert exceeded() == expected
    assert Limits().start()() is None


def test_in_process_tables_that_cannot_be_are_refused_and_fields_are_counted(tmp_path: Path) -> None:
    """A device without a child has what is asked before anything is read."""
    bundle = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")
    with pytest.raises(InputError, match=r"its trained tables take 0 MB, more than max_ram_mb 0\.001 allows"):
        Device(bundle, tmp_path / "state", max_ram_mb=0.001, policy=OPEN)
    empty_nodes(bundle, 1 << 20)
    resign(bundle)
    with pytest.raises(InputError, match="it has more than 400,000 fields"):
        Device(bundle, tmp_path / "other", policy=OPEN).learn(["i1"])


def test_time_runs_while_a_bundle_is_worked_with_and_not_while_a_server_is_waited_for() -> None:
    script = """
import time
from edge.limited_process import NOW, confine, timed
from privacy.errors import InputError
try:
    confine(None, 3, lambda: None)
    time.sleep(0.3)
    NOW.rest()
    time.sleep(3.5)
    with timed():
        time.sleep(0.5)
    time.sleep(2.6)
    print("waited", flush=True)
    with timed():
        sum(range(1 << 40))  # hears no signal of Python's
    print("never")
except InputError as error:
    print(error)
"""
    done = run(script)
    ended = "ended: it took longer than --max-seconds 3 allows; finished work is kept, and no file is half written"
    assert done.stdout.splitlines() == ["waited", ended], done


def test_a_child_that_failed_in_a_new_round_is_followed_by_another_once(tmp_path: Path) -> None:
    """Of a charged round a release comes, also where a graph has taken the memory that one needs."""
    script = f"""
import sys
from pathlib import Path
from edge.limited_process import confine
begun = Path({str(tmp_path / "begun")!r})
confine(None, 60, lambda: None, lambda: begun.read_text() if begun.exists() else None)
print("begun" if begun.exists() else "new", flush=True)
begun.write_text("round 1")
sys.exit(2)
"""
    for expected in (["new", "begun"], ["begun"]):
        done = run(script)
        assert (done.returncode, done.stdout.split()) == (2, expected), done
