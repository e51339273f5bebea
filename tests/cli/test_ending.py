"""What `edgefr simulate` prints when a run is done: its first screen, or what was asked for instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from privacy.errors import InputError
from tests.cli.conftest import Cli


@pytest.fixture
def small(place: Path, tmp_path: Path) -> tuple[str | Path, ...]:
    """A run of one round, whose folder has a name that rich would take for markup."""
    changes = ("--set", "rounds=1", "--no-bundles")
    return ("simulate", "--experiment", place / "tiny-fedmf.yaml", *changes, "--out", tmp_path / "a [bold]run")


def test_a_run_ends_with_one_screen(small: tuple[str | Path, ...], cli: Cli) -> None:
    code, out, _ = cli(*small)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 24, out
    paths = ("report: ", "run: ")  # lines as long as what they name
    assert max(len(line) for line in lines if not line.startswith(paths)) <= 100, out
    assert lines[0].startswith("fedmf on demo: "), "whether it was worth it comes first"
    assert "NDCG@10" in lines[0]
    for part in ("popularity", "chance", "95 % over users", "slowest tenth", "left out", "nothing is guaranteed"):
        assert part in out
    assert lines[-1] == f"run: {small[-1]}"


def test_json_is_the_summary_and_quiet_the_path_alone(small: tuple[str | Path, ...], cli: Cli) -> None:
    code, out, _ = cli(*small, "--json")
    assert code == 0
    summary = Path(small[-1]) / "summary.json"
    assert json.loads(out) == json.loads(summary.read_text())
    assert cli(*small[:-1], f"{small[-1]}-2", "--quiet") == (0, f"{small[-1]}-2\n", "")


@pytest.mark.slow
def test_seeds_end_in_the_same_ways(small: tuple[str | Path, ...], cli: Cli) -> None:
    code, out, _ = cli(*small, "--seeds", "2", "--json")
    assert code == 0
    assert json.loads(out)["seeds"] == [0, 1]
    (Path(small[-1]) / "summary.json").unlink()
    assert cli("simulate", "--resume", small[-1], "--quiet") == (0, f"{small[-1]}\n", "")
    (Path(small[-1]) / "summary.json").unlink()
    code, out, _ = cli("simulate", "--resume", small[-1])
    assert code == 0
    assert "fedmf on demo, 2 seeds: " in out
    assert len(out.splitlines()) <= 24
    assert out.splitlines()[-2:] == [f"report: {small[-1]}/report.html", f"runs: {small[-1]}"]
    assert (Path(small[-1]) / "report.html").is_file()


def test_seeds_say_that_each_has_bundles(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, progress: Callable[..., None] | None, **options: object) -> None:
        if work and progress is not None:
            for done in range(2):
                progress("seeds", done, 3, "")
        raise InputError("far enough")

    monkeypatch.setattr("edgefr.simulation.seeds.simulate_seeds", stopped)
    asked = ("simulate", "--set", "method=fedmf", "--seeds", "3", "--out", tmp_path / "run")
    said = "each of 3 seeds ends with a bundle per device class"
    work = True
    assert cli(*asked)[2].count(said) == 1
    for quiet in (("--no-bundles",), ("--quiet",), ("--set", "method=ease")):
        assert said not in cli(*asked, *quiet)[2], quiet
    work = False
    assert cli(*asked)[2] == "error: far enough\n", "what is refused before any work says its own line alone"


@pytest.mark.parametrize("asked", [("--full", "--json"), ("--json", "--quiet"), ("--full", "--quiet")])
def test_two_endings_are_refused_before_anything_is_done(
    asked: tuple[str, str], small: tuple[str | Path, ...], cli: Cli
) -> None:
    for arguments in (small, ("simulate", "--resume", small[-1])):
        line = cli.refused(*arguments, *asked)
        assert line == f"error: {asked[0]} and {asked[1]} exclude each other; give one of them"
    assert not Path(small[-1]).exists()
