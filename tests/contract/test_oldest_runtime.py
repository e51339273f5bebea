"""Every bundle learns on the oldest onnxruntime that its manifest admits, in an environment of its own: all slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cloud.pooling import POOLINGS
from edge.bundle import open_bundle
from export.encoders import TextEncoders, encoder_of, stage_encoders
from export.folder import MIN_ORT
from export.staged_files import Staging
from tests.closeness import assert_same
from tests.contract import bundles, programs, session_bundles, sessions
from tests.contract.programs import interactions
from tests.contract.test_devices import bounds
from tests.export import worlds

pytestmark = pytest.mark.slow
ROOT, CLIENT = Path(__file__).parents[2], 7
OFFLINE = ("No matching distribution", "Connection", "Temporary failure", "SSLError")


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A python with the oldest onnxruntime of the manifests, or the test is skipped where it cannot be fetched."""
    home = tmp_path_factory.mktemp("oldest") / "environment"
    venv.create(home, with_pip=True)
    version = open_bundle(bundles.bundle("fedmf")).manifest.onnx.min_ort
    packages = [f"onnxruntime=={version}.*", "numpy<2", "tokenizers", "safetensors", "pydantic", "cryptography"]
    command = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and any(word in done.stderr for word in OFFLINE):
        pytest.skip(f"packages cannot be fetched here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return home / "bin" / "python"


def bundle_of(variant: str) -> Path:
    return (session_bundles if variant in session_bundles.SHIPPED else bundles).bundle(variant)


def learned(python: Path | str, variant: str, state: Path) -> dict:
    known = open_bundle(bundle_of(variant)).manifest.item_count
    items = ",".join(map(str, interactions()[CLIENT] % known))
    command = [
        str(python),
        str(Path(__file__).with_name("device_process.py")),
        str(bundle_of(variant)),
        str(state),
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, bundles.user(CLIENT), items],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def today(variant: str) -> dict:
    return learned(sys.executable, variant, Path(bundles.fresh()))


@pytest.mark.parametrize("variant", [*bundles.SHIPPED, *session_bundles.SHIPPED])
def test_a_round_on_the_oldest_runtime(variant: str, oldest: Path, tmp_path: Path) -> None:
    old, new = learned(oldest, variant, tmp_path / "state"), today(variant)
    assert old["onnxruntime"].startswith(open_bundle(bundle_of(variant)).manifest.onnx.min_ort)
    assert old["heavy"] == new["heavy"] == []
    local = (sessions if variant in session_bundles.SHIPPED else programs).program(variant)
    allowed = bounds(local, new["steps"])
    assert_same(np.float32(old["update"]), np.float32(new["update"]), **allowed)
    for name, (items, values) in new["rows"].items():
        assert old["rows"][name][0] == items
        assert_same(np.float32(old["rows"][name][1]), np.float32(values), **allowed, name=name)
    assert [item for item, *_ in old["best"]] == [item for item, *_ in new["best"]]


READS = """
import json, sys
from pathlib import Path
from edge.encoder import open_encoder
from edge.manifest import Encoder
from edge.ort import ort

root, texts = Path(sys.argv[1]), json.loads(sys.argv[2])
records = [Encoder.model_validate(record) for record in json.loads(sys.argv[3])]
vectors = {record.dtype: open_encoder(record, root.joinpath).encode(texts).tolist() for record in records}
print(json.dumps({"onnxruntime": ort.__version__, "vectors": vectors}))
"""


def test_every_form_of_an_encoder_reads_the_same_on_the_oldest_runtime(oldest: Path, tmp_path: Path) -> None:
    stage, texts = Staging(tmp_path), worlds.titles()[:8]
    how = TextEncoders(worlds.student(), POOLINGS["mean"], 16)
    records = [form.record for form in stage_encoders(stage, how, worlds.titles()).values()]
    told = json.dumps([record.model_dump(mode="json") for record in records])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"} | {"PYTHONPATH": str(ROOT)}
    command = [str(oldest), "-c", READS, str(tmp_path), json.dumps(texts), told]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    assert there["onnxruntime"].startswith(MIN_ORT)
    assert list(there["vectors"]) == ["f32", "f16", "i8", "i4"]
    for record in records:
        here, exact = encoder_of(stage, record).encode(texts), record.dtype in ("f32", "f16")
        # integer products round their activations, in another way from release to release
        if exact:
            assert_same(np.float32(there["vectors"][record.dtype]), here)
        else:
            np.testing.assert_allclose(there["vectors"][record.dtype], here, atol=0.02 * float(np.abs(here).max()))
