"""`edgefr calibrate` on a run, and the fleet file that takes what it measured."""

from __future__ import annotations

import shutil

from edgefr.fleet import load_fleet
from tests.cli.conftest import Cli, Made


def test_a_run_is_measured_and_its_fleet_takes_the_steps(transfr: Made, cli: Cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "calibration.json"
    code, text, errors = cli("calibrate", transfr.run.path, "--out", out)
    assert (code, errors) == (0, "")
    for name in ("laptop_x86", "phone_sd680", "speaker_512", "fits", "GFLOP/s", f"calibration: {out}"):
        assert name in text, name
    cost = {"mode": "host-ratio", "calibration": str(out)}
    spec = load_fleet(transfr.run.path / "devices.yaml", {"cost": cost})
    assert list(spec.cost.calibration.classes) == ["phone_sd680", "laptop_x86", "speaker_512"]
    assert all(spec.cost.calibration.learning(name).work.upload_bytes > 0 for name in spec.fleet.share)


def test_what_cannot_be_calibrated_ends_with_one_line(transfr: Made, cli: Cli, tmp_path):
    for arguments, error in (
        ((tmp_path,), "has no bundles; give a run"),
        ((tmp_path / "nowhere",), "has no bundles"),
        ((transfr.run.path, "--devices", tmp_path / "none.yaml"), "cannot read"),
        ((transfr.run.path, "--timeout-s", "0"), "--timeout-s"),
    ):
        code, _, errors = cli("calibrate", *arguments)
        assert code == 2
        assert error in errors
        assert len(errors.splitlines()) == 1
    shutil.copytree(transfr.run.path / "bundles", tmp_path / "bundles")
    (tmp_path / "bundles" / "laptop_x86" / "onnx" / "score.onnx").write_bytes(b"")
    code, _, errors = cli("calibrate", tmp_path / "bundles")
    assert code == 2
    assert "score.onnx has 0 bytes" in errors
    assert not (tmp_path / "bundles" / "calibration.json").exists()
