"""Experiments in a folder, the surroundings of commands, and one whole run of each experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import edgefr
from tests.durable import runs


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiments of these tests."""
    folder = tmp_path_factory.mktemp("durable")
    (folder / "f3crec.yaml").write_text(runs.F3CREC)
    (folder / "fedmf.yaml").write_text(runs.FEDMF)
    return folder


@pytest.fixture(scope="session")
def cache(place: Path) -> Path:
    return place / "cache"


@pytest.fixture(scope="session")
def whole(place: Path, cache: Path) -> Path:
    """A run of the FedMF experiment that nobody disturbed, with checkpoints."""
    out = place / "whole"
    done = edgefr("simulate", *command(place, "fedmf"), "--out", out, cache=cache)
    assert done.returncode == 0, done.stderr
    return out


def command(place: Path, name: str) -> list[str | Path]:
    """The options of `edgefr simulate` for an experiment of these tests."""
    return ["--experiment", place / f"{name}.yaml", "--no-bundles", "--checkpoint-every", "1"]
