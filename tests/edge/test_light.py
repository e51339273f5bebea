"""The device side runs where nothing heavy is installed."""

import json
import os
import re
import subprocess
import sys
import venv
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from edge import Recommender
from tests.contract import bundles
from tests.export import worlds

ROOT = Path(__file__).parents[2]
BASE = ["numpy", "onnxruntime", "tokenizers", "safetensors", "pydantic", "cryptography", "pyyaml", "typer", "rich"]
"""What a device installs, and what the extra `text` adds, by which it reads texts."""
ALONE = """
import importlib.abc, json, os, sys

class Watched(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if KNOWN and name.split(".")[0] not in KNOWN and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        if name == "onnxruntime":
            assert os.environ.get("ORT_DISABLE_TELEMETRY") == "1", "the library loads with its telemetry on"

KNOWN = json.loads(sys.argv[1])
sys.meta_path.insert(0, Watched())
"""
READS = f"""{ALONE}
from edge import Recommender
device = Recommender(sys.argv[2])
print(json.dumps({{"best": device.recommend(5, user="u4"), "vector": device.encode("bar cen")[0].tolist()}}))
"""
LEARNS = f"""{ALONE}
from edge import Device
from edge.policy import Policy

device = Device(sys.argv[2], sys.argv[3], policy=Policy(signed=False))
device.learn([1, 2, 3], [100, 200, 300])
device.recommend(5)
assert 0 < device.status()["epsilon"] < 2, "the ledger needs no library"
if os.path.isdir("/proc/self/fd"):
    there = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    print(sum(os.readlink(path).startswith("socket:") for path in there if os.path.islink(path)))
"""


def known() -> list[str]:
    """Name the modules that are there where what a device installs is, and nothing else."""
    todo, dists = list(BASE), set[str]()
    while todo:
        name = re.split(r"[^A-Za-z0-9._-]", todo.pop())[0].lower().replace("_", "-")
        with suppress(metadata.PackageNotFoundError):
            asked = [] if name in dists else metadata.requires(name) or []
            todo += [one for one in asked if "extra ==" not in one]
            dists.add(name)
    own = [
        top
        for top, of in metadata.packages_distributions().items()
        if {n.lower().replace("_", "-") for n in of} & dists
    ]
    return sorted({"edge", "privacy", "__main__", *own, *sys.stdlib_module_names, *sys.builtin_module_names})


def run(python: Path | str, program: str, modules: list[str], *given: Path, **how: Any) -> str:
    """Return what a fresh process prints in which no other modules can be imported (none named: all can)."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "ORT_DISABLE_TELEMETRY")}
    environment |= how.pop("env", {}) | {"PYTHONPATH": str(ROOT)}
    command = [str(python), "-c", program, json.dumps(modules), *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(bundle: Path) -> dict:
    device = Recommender(bundle)
    best = [[item, title, pytest.approx(score, abs=1e-5)] for item, title, score in device.recommend(5, user="u4")]
    return {"best": best, "vector": pytest.approx(device.encode("bar cen")[0].tolist(), abs=1e-5)}


@pytest.mark.parametrize("kind", ["transfr", *worlds.READ])
def test_recommend_and_encode_with_nothing_heavy_importable(kind: str) -> None:
    bundle = worlds.exported(kind)[0] / "laptop"
    assert not {"torch", "onnx", "pandas", "scipy", "numba", "edgefr", "export", "cloud"} & set(known())
    assert json.loads(run(sys.executable, READS, known(), bundle)) == expected(bundle)


def test_a_device_writes_nothing_outside_its_state_and_opens_no_socket(tmp_path: Path) -> None:
    """Onnxruntime's telemetry wrote a device id and a queue of events under the user's cache folder."""
    bundle, home, state = bundles.promising("fedmf", 1.0, 4), tmp_path / "home", tmp_path / "state"
    home.mkdir()
    places = ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOCALAPPDATA", "TMPDIR")
    environment = dict.fromkeys(places, str(home)) | {"PYTHONDONTWRITEBYTECODE": "1"}
    before = sorted(bundle.rglob("*"))
    said = run(sys.executable, LEARNS, known(), bundle, state, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert said.strip() in ("0", ""), "a socket is open"
    assert list(home.rglob("*")) == []
    assert sorted(bundle.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "state"]


@pytest.mark.slow
def test_recommend_and_encode_in_an_environment_without_torch(tmp_path: Path) -> None:
    bundle, home = worlds.exported("transfr")[0] / "laptop", tmp_path / "device"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "-q", *BASE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    offline = ("No matching distribution", "ConnectionError", "Connection", "Temporary failure", "SSLError")
    if done.returncode and any(word in done.stderr for word in offline):
        pytest.skip(f"packages cannot be fetched here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert json.loads(run(python, READS, [], bundle)) == expected(bundle)
