"""The device side runs where nothing heavy is installed."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from edge import Recommender
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
