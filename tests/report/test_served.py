"""What a report promises is what was released so far: of the simulation and of served rounds together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefr.simulation.runs.run import Run
from edgefr.studies.pages import write_report
from tests.cli.commands import edgefr
from tests.remote.worlds import Twins, fedmf, noisy, served
from tests.report.test_web import words


def page(run: Run) -> str:
    """The text of a run's page."""
    return words(write_report([run.path]).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """A run without simulated rounds, two of which were served: each client released twice."""
    folder = tmp_path_factory.mktemp("served")
    twins = noisy(folder)
    served(twins, folder, rounds=2)
    return twins


def test_the_page_of_a_served_run_says_what_all_rounds_spent(whole: Twins, tmp_path: Path) -> None:
    told = json.loads(edgefr("privacy", whole.begun.path, "--json", cache=tmp_path).stdout)
    spent, said = told["ledger"]["eps_guaranteed"], page(whole.begun)
    assert spent > 0
    assert f"epsilon {spent:.3g} per person" in said
    assert "simulated and served rounds together" in said
    assert "2 served rounds" in said
    for wrong in ("epsilon 0 per person", "at most 50 % sure", "No client was invited", "Nothing was spent"):
        assert wrong not in said, wrong


def test_both_tables_of_a_served_run_say_the_same_epsilon(whole: Twins, tmp_path: Path) -> None:
    told = json.loads(edgefr("privacy", whole.begun.path, "--json", cache=tmp_path).stdout)
    assert told["eps_guaranteed"] == told["ledger"]["eps_guaranteed"]
    assert told["releases_per_client"]["max"] == 2
    assert told["recipients"] == told["ledger"]["composed"][0]["recipient"]
    out = " ".join(edgefr("privacy", whole.begun.path, cache=tmp_path).stdout.split())
    assert "2 of them served" in out
    assert "0 (nothing was released)" not in out.partition("of that simulated")[0]


def test_the_first_lines_of_a_served_run_say_what_all_rounds_spent(whole: Twins) -> None:
    said = " ".join(str(whole.begun.brief()).split())
    assert "nothing has been released" not in said
    assert "simulated and served rounds together" in said


def test_before_anything_is_released_no_guarantee_is_praised(tmp_path: Path) -> None:
    run = noisy(tmp_path).begun
    planned, said = run.summary["privacy"]["eps_planned"], page(run)
    assert "Nothing has been released yet" in said
    assert f"one release would cost a client epsilon {planned:.3g}" in said
    for wrong in ("epsilon 0 per person", "strong guarantee", "at most 50 % sure"):
        assert wrong not in said, wrong
    table = " ".join(edgefr("privacy", run.path, cache=tmp_path).stdout.split())
    assert "nothing has been released yet" in table
    assert "0 (nothing was released)" not in table


def test_without_noise_nothing_is_promised_before_nor_after(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    before = page(twins.begun)
    assert "Nothing has been released yet" in before
    assert "nothing would be guaranteed" in before
    assert "✓ yes" not in before
    served(twins, tmp_path, rounds=1)
    assert "No guarantee" in page(twins.begun)
