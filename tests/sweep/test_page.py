"""The page of a sweep: which points are usable, beside what, and that it is made again from the folder alone."""

from __future__ import annotations

import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgefr.studies.pages import write_report
from edgefr.studies.sweeps.grid import Axis
from edgefr.studies.sweeps.page import command, sweep_page, usable, write_sweep
from edgefr.studies.sweeps.plan import SweepPlan
from edgefr.studies.sweeps.results import FinishedSweep, results
from edgefr.studies.sweeps.tradeoff import comparables
from privacy.errors import InputError
from tests.report.conftest import browser
from tests.report.test_browser import CONTRAST, OPEN, OUTSIDE, looked_at
from tests.report.test_web import HOSTILE, sections, words
from tests.sweep.conftest import Made
from tests.sweep.summaries import entry, summary
from tests.sweep.test_sweep import records

__all__ = ["browser"]


def test_a_sweep_ends_with_a_page_and_report_makes_the_same_again(whole: Made, tmp_path: Path) -> None:
    page = (whole.folder / "report.html").read_text()
    assert sections(page) == ["points", "tradeoff", "measures", "made"]
    assert f"wrote {whole.folder / 'report.html'}" in whole.process.stdout
    assert write_report([whole.folder], tmp_path / "again.html").read_text() == page
    assert len(page) < 3_000_000


def test_its_points_are_those_of_the_table(whole: Made) -> None:
    said = words((whole.folder / "report.html").read_text())
    for row in records(whole.folder / "sweep.csv"):
        mean, sd = float(row["NDCG@10"]), float(row["NDCG@10 sd"])
        assert f"{mean:.4f} ± {sd:.4f}" in said
    assert "epsilon guaranteed" in said
    assert re.search(r"privacy\.epsilon inf [\d.∞–]+ ∞", said)
    assert "--grid 'privacy.epsilon=[8,inf]'" in said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([(1.0, False), (8.0, True), ("inf", True)], "The smallest guaranteed epsilon at which learning helped"),
        ([(1.0, False), (8.0, False), ("inf", True)], "learning helped only without a guarantee"),
        ([(0.01, False), (1.0, False), ("inf", False)], "There is no usable point: learning did not help in every run"),
        ([(1.0, True), (1.0, False)], "There is no usable point: learning did not help in every run"),
    ],
    ids=["from 8 on", "without a guarantee", "nowhere", "in one of two seeds"],
)
def test_a_usable_point_is_one_at_which_learning_helped(found: list[Any], said: str) -> None:
    made = [
        entry({"privacy.epsilon": str(eps)}, seed, summary(0.3, eps, won=won)) for seed, (eps, won) in enumerate(found)
    ]
    assert said in usable(comparables(results(made)))


def test_the_command_is_that_of_the_record() -> None:
    search = {"trials": 5, "space": {"privacy.clip": ["log", 0.1, 10.0]}, "objectives": {"all": "NDCG@10"}}
    record = {"experiment": "own.yaml", "set": [], "grid": {}, "seeds": [0], "search": search}
    assert command(record) == (
        "edgefr sweep --experiment own.yaml --search 5 --search-space 'privacy.clip=log(0.1,10)' --seeds 1"
    )


def test_the_command_has_the_options_and_the_data_without_its_folder() -> None:
    """Without them it would run another method, on the demo."""
    named = {"method": "fedmf", "data": "/home/ada/own.csv", "clip": 0.5, "rounds": None, "engine.device": "cpu"}
    plan = SweepPlan([Axis("local_epochs", (1, 2))], named=named)
    assert shlex.split(command(plan.record())) == [
        "edgefr",
        "sweep",
        "--method",
        "fedmf",
        "--data",
        "own.csv",
        "--clip",
        "0.5",
        "--set",
        "engine.device=cpu",
        "--grid",
        "local_epochs=[1,2]",
        "--seeds",
        "1",
    ]


def test_a_sweep_that_did_not_end_is_refused_in_a_line(whole: Made, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    shutil.copy(whole.folder / "sweep.json", folder)
    with pytest.raises(InputError, match="did not end"):
        write_sweep(folder)
    (folder / "runs.csv").write_text("privacy.epsilon,seed,status,folder,problem\n8,0,done,../../etc,\n")
    with pytest.raises(InputError, match="outside the sweep"):
        write_sweep(folder)
    with pytest.raises(InputError, match="give it alone"):
        write_report([whole.folder, whole.folder])


def test_hostile_words_of_a_sweep_are_shown_and_nothing_more(tmp_path: Path) -> None:
    found = (
        entry({"method": HOSTILE}, 0, summary(0.3, 1.0, won=True) | {"data": HOSTILE, "protocol": HOSTILE}),
        entry({"method": "b"}, 0, HOSTILE),
    )
    record = {"experiment": HOSTILE, "set": [HOSTILE], "grid": {"method": [HOSTILE, "b"]}, "seeds": [0], "search": None}
    page = sweep_page(FinishedSweep(tmp_path, record, found, found))
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert math.isclose(page.count("{{ 7*7 }}"), page.count("7*7"))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_renders_in_a_browser_without_a_network(width: int, scheme: str, whole: Made, browser: Any) -> None:
    found = looked_at(browser, whole.folder / "report.html", width, scheme)
    found.execute_script(OPEN)
    assert found.execute_script(OUTSIDE) == []
    assert found.execute_script("return document.documentElement.scrollWidth") <= width
    assert found.execute_script(CONTRAST)[1] == []
