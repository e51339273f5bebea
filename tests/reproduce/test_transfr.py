"""TransFR's rows as experiments, its printed numbers, and tables from hand-made summaries with literal numbers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from edgefr.report.pages import Page
from edgefr.studies.reproductions.cells import FinishedRuns
from edgefr.studies.reproductions.transfr.recipes import ROWS, tasks
from edgefr.studies.reproductions.transfr.tables import (
    LAYERS,
    LOCAL_EPOCHS,
    TRANSFR,
    cold,
    lost,
    of_stage,
    shown,
    turned,
    warm,
)
from privacy.errors import InputError
from tests.cli import commands

ASK = TRANSFR.ask(seeds=[0, 1])
HERE, BACK = tasks("amazon-arts-office")


def page(name: str, found: FinishedRuns) -> Page:
    return TRANSFR.exhibits[name].page(ASK, found, ["amazon-arts-office"])


def both(value: float) -> dict[str, float]:
    return {"HR@10": value, "NDCG@10": value / 2}


def summary(source: dict[str, float], target: dict[str, float]) -> dict[str, Any]:
    """A run with these HR@10 by stage; popularity reaches .4 in the source and .5 in the target."""
    levels = {"source": source, "target": target}
    others = {"source": {"popularity": 0.4, "chance": 0.1}, "target": {"popularity": 0.5, "chance": 0.09}}
    return {
        "stage": list(target)[-1],
        "stages": {side: {name: both(v) for name, v in of.items()} for side, of in levels.items()},
        "references": {side: {name: both(v) for name, v in of.items()} for side, of in others.items()},
    }


TUNED = summary(
    {"random": 0.1, "pretrain": 0.2, "finetune": 0.3, "localtrain": 0.4},
    {"random": 0.05, "pretrain": 0.15, "finetune": 0.2, "context": 0.25, "localtrain": 0.3},
)
CMF = summary({"central": 0.4, "with target items": 0.45}, {"central": 0.1, "with target items": 0.35})
PMF = summary({"central": 0.4}, {"central": 0.1})


def test_a_task_is_asked_for_in_both_directions() -> None:
    there, back = (task.cell(ASK, "pmf").experiment(0).protocol for task in tasks("amazon-movie-book"))
    assert (there.source, there.target) == (back.target, back.source) == ("movie", "book")
    with pytest.raises(InputError, match="unknown data set of two domains 'ml-100k'"):
        tasks("ml-100k")


def test_heads_of_figure_5_are_the_papers_widths() -> None:
    heads = [cell.experiment(0).model for cell in turned(ASK, HERE, LAYERS).values()]
    assert [each["adapter"] for each in heads] == [[32], [128, 32], [128, 64, 32], [256, 128, 64, 32]]
    assert {each["head_form"] for each in heads} == {"adapter"}
    folders = [cell.folder(0) for cell in turned(ASK, HERE, LAYERS).values()]
    assert folders[1].startswith("amazon-arts-office_arts-office_transfr_adapter=128-32_head_form=adapter_")


def test_figure_6_shares_its_sixth_epoch_with_table_4() -> None:
    points = turned(ASK, HERE, LOCAL_EPOCHS)
    epochs = {point: cell.experiment(0).model["local_training_epochs"] for point, cell in points.items()}
    assert epochs == {"2": 2, "4": 4, "6": 6, "8": 8, "10": 10}
    assert points["6"] == HERE.cell(ASK, "transfr")


def test_what_a_table_takes_from_a_run() -> None:
    assert [cold("target", "HR@10")(one) for one in (TUNED, CMF, PMF)] == [0.2, 0.1, 0.1]
    assert [warm("HR@10")(one) for one in (TUNED, CMF)] == [0.3, 0.35]
    assert warm("HR@10")(PMF) != warm("HR@10")(PMF), "nothing is known there: NaN"
    assert [shown(side, "HR@10")(TUNED) for side in ("source", "target")] == [0.4, 0.3]
    assert [shown(side, "HR@10")(CMF) for side in ("source", "target")] == [0.4, 0.1]
    assert lost("NDCG@10")(TUNED) == pytest.approx(25)
    assert lost("NDCG@10")(CMF) == pytest.approx(75)


def test_tables_show_rows_references_and_the_papers_numbers() -> None:
    made = {"transfr": TUNED, "cmf": CMF, "pmf": PMF}
    found = FinishedRuns({HERE.cell(ASK, row): {0: one, 1: one} for row, one in made.items()})
    four = page("table-4", found)
    first, second, printed = four.sheets
    assert (first.title, second.title) == (
        "arts → office, cold start (amazon-arts-office)",
        "office → arts, cold start (amazon-arts-office)",
    )
    rows = {row["method"]: row for row in first.rows}
    assert rows["PMF, central"]["HR@10"] == "0.1000 ± 0.0000"
    assert rows["TransFR, cross-entropy and Adam on devices"]["HR@10"] == "0.2000 ± 0.0000"
    assert rows["chance"]["HR@10"] == "0.0900 ± 0.0000"
    assert [row["Music→Books\nHR@10"] for row in printed.rows][:2] == ["0.1403", "0.1692"]
    five = page("table-5", found)
    rows = {row["method"]: row for row in five.sheets[0].rows}
    assert rows["TransFR, cross-entropy and Adam on devices"]["lost %"] == "25.0 ± 0.0"
    assert rows["CMF, central"]["target, its\nitems known"] == "0.3500 ± 0.0000"
    assert rows["popularity"]["source"] == "0.4000 ± 0.0000"
    assert found.fullest([HERE.cell(ASK, "pmf")], of_stage("source", "hybrid", "HR@10")) is None


def test_a_part_of_a_table_leaves_the_papers_rows() -> None:
    found = FinishedRuns({HERE.cell(ASK, "pmf"): {0: PMF}})
    left = {(name, ROWS[name].label) for name in ROWS if name != "pmf"}
    part = page("table-4", found).without(left)
    assert [row["method"] for row in part.sheets[0].rows] == ["PMF, central", "popularity", "chance"]
    assert len(part.sheets[-1].rows) == 9


def test_figures_show_every_stage_and_every_point() -> None:
    found = FinishedRuns({cell: {0: TUNED} for cell in TRANSFR.exhibits["figure-6"].cells(ASK, "amazon-arts-office")})
    by_stage = page("figure-3", found)
    rows = {row["stage"]: row["TransFR, cross-entropy and Adam on devices"] for row in by_stage.sheets[0].rows}
    assert [rows[name] for name in ("Random", "Pretrain", "Finetune", "context", "Localtrain")] == [
        *("0.0500", "0.1500", "0.2000", "0.2500", "0.3000")
    ]
    assert by_stage.figure is not None
    six = page("figure-6", found)
    assert [row["HR@10\nLocaltrain"] for row in six.sheets[0].rows] == ["0.3000"] * 5


@pytest.mark.slow
def test_the_command_runs_rows_in_both_directions(tmp_path: Path) -> None:
    small = ["--set", "data_options={users: 60, items: 160, interactions: 24}", "--set", "protocol.negatives=20"]
    small += ["--rounds", "1", "--seeds", "1"]
    asked = ("--table", "4", "--table", "5", "--data", "demo", "--rows", "pmf,fcf")
    process = commands.edgefr("reproduce", "transfr", *asked, *small, "--out", tmp_path / "out", cache=tmp_path)
    assert process.returncode == 0, process.stderr
    rows = list(csv.DictReader((tmp_path / "out" / "table-4.csv").open()))
    assert {(row["task"], row["method"]) for row in rows if row["method"]} == {
        (task, row) for task in ("books → films", "films → books") for row in ("pmf", "fcf")
    }
    own = [float(row["mean"]) for row in rows if row["method"] and row["metric"] == "HR@10"]
    assert own == pytest.approx([10 / 21] * 4), "items that nobody trained are tied: 10 of 21 candidates"
    written = (tmp_path / "out" / "table-5.md").read_text()
    assert "0.2232" in written, "what the paper prints"
    assert "TransFR, as we" not in written
