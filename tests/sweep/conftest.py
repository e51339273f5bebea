"""A tiny sweep by the real command line is made once."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.commands import edgefr
from tests.cli.conftest import cli, inside
from tests.noises import KEY

__all__ = ["cli", "inside"]  # fixtures that are used here too

EXPERIMENT = """\
name: tiny
method: fedmf
data_options: {users: 60, items: 160, interactions: 12}
rounds: 2
model: {dim: 4}
privacy: {mechanism: gaussian, clip: 0.5}
fleet:
  share: {laptop_x86: 0.5, phone_sd680: 0.3, speaker_512: 0.2}
"""
GRID = ["--grid", "privacy.epsilon=[8, inf]", "--seeds", "2"]


@dataclass(frozen=True)
class Made:
    """A sweep's folder and the command that made it."""

    folder: Path
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.yaml").write_text(EXPERIMENT)
    KEY.write(folder / "noise.key")
    return folder


@pytest.fixture(scope="session")
def cache(place: Path) -> Path:
    return place / "cache"


@pytest.fixture(scope="session")
def tiny(place: Path) -> Path:
    """The experiment's file."""
    return place / "tiny.yaml"


@pytest.fixture(scope="session")
def same(place: Path) -> tuple[str, str]:
    """The options by which every sweep of these tests draws the same noise."""
    return ("--noise-key", str(place / "noise.key"))


@pytest.fixture(scope="session")
def whole(place: Path, tiny: Path, cache: Path, same: tuple[str, str]) -> Made:
    """Two epsilons, two seeds, two workers, nobody disturbs it."""
    out = place / "whole"
    command = ("sweep", "--experiment", tiny, *GRID, *same, "--workers", "2", "--out", out)
    return Made(out, edgefr(*command, cache=cache))
