"""The device side runs where nothing heavy is installed."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from edge import Recommender
from tests.contract import bundles
from tests.export import worlds

ROOT = Path(__file__).parents[2]
HEAVY = ["torch", "transformers", "onnx", "onnxscript", "pandas", "pyarrow", "scipy", "matplotlib", "peft"]
PROGRAM = """
import importlib.abc, json, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}")

HEAVY = json.loads(sys.argv[2])
sys.meta_path.insert(0, Absent())
from edge import Recommender
device = Recommender(sys.argv[1])
out = {
    "best": device.recommend(5, user="u4"),
    "vector": device.encode("bar cen")[0].tolist(),
    "heavy": sorted({name.split(".")[0] for name in sys.modules} & set(HEAVY)),
}
print(json.dumps(out))
"""


def answer(python: Path | str, bundle: Path, heavy: list[str]) -> dict:
    """What a fresh process says with `heavy` unimportable."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"} | {"PYTHONPATH": str(ROOT)}
    command = [str(python), "-c", PROGRAM, str(bundle), json.dumps(heavy)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(bundle: Path) -> dict:
    device = Recommender(bundle)
    best = [[item, title, pytest.approx(score, abs=1e-5)] for item, title, score in device.recommend(5, user="u4")]
    return {
        "best": best,
        "vector": pytest.approx(device.encode("bar cen")[0].tolist(), abs=1e-5),
        "heavy": [],
    }


@pytest.mark.parametrize("kind", ["transfr", *worlds.READ])
def test_recommend_and_encode_with_torch_unimportable(kind: str) -> None:
    bundle = worlds.exported(kind)[0] / "laptop"
    assert answer(sys.executable, bundle, HEAVY) == expected(bundle)


ALONE = """
import importlib.abc, os, sys

class Loads(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "onnxruntime":
            assert os.environ.get("ORT_DISABLE_TELEMETRY") == "1", "the library loads with its telemetry on"

sys.meta_path.insert(0, Loads())
from edge import Device
from edge.policy import OPEN

device = Device(sys.argv[1], sys.argv[2], policy=OPEN)
device.practise([1, 2, 3], [100, 200, 300])
device.recommend(5)
if os.path.isdir("/proc/self/fd"):
    there = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    print(sum(os.readlink(path).startswith("socket:") for path in there if os.path.islink(path)))
"""


def test_a_device_writes_nothing_outside_its_state_and_opens_no_socket(tmp_path: Path) -> None:
    """Onnxruntime's telemetry wrote a device id and a queue of events under the user's cache folder."""
    bundle, home, state = bundles.bundle("fedmf"), tmp_path / "home", tmp_path / "state"
    home.mkdir()
    places = ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOCALAPPDATA", "TMPDIR")
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    environment |= dict.fromkeys(places, str(home)) | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    before = sorted(bundle.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(bundle), str(state)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("0", ""), "a socket is open"
    assert list(home.rglob("*")) == []
    assert sorted(bundle.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "state"]


def test_recommend_and_encode_in_an_environment_without_torch(tmp_path: Path) -> None:
    bundle, home = worlds.exported("transfr")[0] / "laptop", tmp_path / "device"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    base = ["numpy", "onnxruntime", "tokenizers", "safetensors", "pydantic", "cryptography", "pyyaml", "typer", "rich"]
    command = [str(python), "-m", "pip", "install", "-q", *base]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        offline = (
            "No matching distribution",
            "ConnectionError",
            "Connection",
            "Temporary failure",
            "SSLError",
        )
        if any(word in done.stderr for word in offline):
            pytest.skip(f"packages cannot be fetched here: {done.stderr.splitlines()[-1]}")
        pytest.fail(done.stderr)
    missing = subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False)
    assert missing.returncode != 0
    assert answer(python, bundle, []) == expected(bundle)
