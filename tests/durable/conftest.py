"""Experiments in a folder, the surroundings of commands, and one whole run of each experiment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.caches import new_cache
from tests.cli.commands import edgefr
from tests.cli.conftest import cli, inside
from tests.durable import runs
from tests.noises import KEY

__all__ = ["cli", "inside"]  # fixtures that are used here too


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiments of these tests."""
    folder = tmp_path_factory.mktemp("durable")
    (folder / "f3crec.yaml").write_text(runs.F3CREC)
    (folder / "fedmf.yaml").write_text(runs.FEDMF)
    runs.write_fleet(folder / "devices.yaml")
    KEY.write(folder / "noise.key")
    return folder


@pytest.fixture(scope="session")
def cache(place: Path) -> Path:
    return new_cache(place / "cache")


@pytest.fixture(scope="session")
def whole(place: Path, cache: Path) -> Path:
    """A run of the FedMF experiment that nobody disturbed, with checkpoints."""
    out = place / "whole"
    done = edgefr("simulate", *command(place, "fedmf"), "--out", out, cache=cache)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    """The FedMF run as a kill in its last round would have left it: three rounds kept, and a line half written."""
    out = tmp_path / "broken"
    shutil.copytree(whole, out)
    for name in (
        "summary.json",
        "metrics.parquet",
        "ledger.parquet",
        "checkpoint/model.safetensors",
        "checkpoint/names.json",
    ):
        (out / name).unlink()
    (out / "report.html").unlink()
    shutil.rmtree(out / "checkpoint" / "round-00000004")
    events = out / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-40])
    return out


def command(place: Path, name: str) -> list[str | Path]:
    """The options of `edgefr simulate` for an experiment of these tests, whose runs all draw the same noise."""
    same = ["--devices", place / "devices.yaml", "--noise-key", place / "noise.key"]
    return ["--experiment", place / f"{name}.yaml", "--no-bundles", "--checkpoint-every", "1", *same]
