"""One small TransFR run and one small FedMF run per test session, made by the real command line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import edgefr
from tests.caches import new_cache
from tests.cli import commands


@dataclass(frozen=True)
class Made:
    """A finished command and the run folder it made."""

    run: edgefr.Run
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiments of the tests; `cache` in it is shared, so that one encoder serves them all."""
    folder = tmp_path_factory.mktemp("edgefr")
    (folder / "tiny.yaml").write_text(commands.TINY)
    (folder / "tiny-fedmf.yaml").write_text(commands.TINY_FEDMF)
    return folder


@pytest.fixture(scope="session")
def cache(place: Path) -> Path:
    return new_cache(place / "cache")


@pytest.fixture(scope="session")
def transfr(place: Path, cache: Path) -> Made:
    """`edgefr simulate` of a small TransFR experiment, bundles included."""
    out = place / "transfr"
    arguments = ("--devices", "devices.yaml", "--experiment", place / "tiny.yaml", "--full", "--out", out)
    return Made(edgefr.Run(out), commands.edgefr("simulate", *arguments, cache=cache))


@pytest.fixture(scope="session")
def fedmf(place: Path, cache: Path) -> Made:
    """`edgefr simulate --seeds 2` of a small FedMF experiment, without bundles."""
    out = place / "fedmf"
    arguments = ("--experiment", place / "tiny-fedmf.yaml", "--seeds", "2", "--no-bundles", "--full", "--out", out)
    return Made(edgefr.Run(out), commands.edgefr("simulate", *arguments, cache=cache))


@pytest.fixture
def inside(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The surroundings of `commands.edgefr` for code that runs in this process."""
    assert isinstance(cache, Path), "this is pytest's own fixture `cache`; import ours and `place` where it is used"
    monkeypatch.chdir(commands.ROOT)
    monkeypatch.delenv("EDGEFR_DATA", raising=False)
    monkeypatch.setenv("EDGEFR_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "80")


class Cli:
    """The command line in this process: arguments -> (exit code, stdout, stderr). Any other exception is a failure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capfd = monkeypatch, capfd

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        from edgefr.cli.app import main

        self.monkeypatch.setattr(sys, "argv", ["edgefr", *map(str, arguments)])
        self.capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        caught = self.capfd.readouterr()
        return ended.value.code, caught.out, commands.without_progress(caught.err)

    def done(self, *arguments: str | Path) -> str:
        """What a command prints that ends well and has nothing to say on stderr."""
        code, out, err = self(*arguments)
        assert (code, err) == (0, ""), (arguments, out, err)
        return out

    def refused(self, *arguments: str | Path) -> str:
        """The one line of a command that is refused."""
        return commands.refused(*self(*arguments))


@pytest.fixture
def cli(inside: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capfd)
