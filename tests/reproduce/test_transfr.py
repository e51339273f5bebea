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
from tests.reproduce.summaries import assert_cells

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


FOUND = FinishedRuns(
    {HERE.cell(ASK, row): {0: m, 1: m} for row, m in {"transfr": TUNED, "cmf": CMF, "pmf": PMF}.items()}
)
KNOB = FinishedRuns({cell: {0: TUNED} for cell in TRANSFR.exhibits["figure-6"].cells(ASK, "amazon-arts-office")})
ADAM = "TransFR, cross-entropy and Adam on devices"


@pytest.mark.parametrize(
    ("name", "row", "cells"),
    [
        ("table-4", "PMF, central", {"HR@10": "0.1000 ± 0.0000"}),
        ("table-4", ADAM, {"HR@10": "0.2000 ± 0.0000"}),
        ("table-4", "chance", {"HR@10": "0.0900 ± 0.0000"}),
        ("table-5", ADAM, {"lost %": "25.0 ± 0.0"}),
        ("table-5", "CMF, central", {"target, its\nitems known": "0.3500 ± 0.0000"}),
        ("table-5", "popularity", {"source": "0.4000 ± 0.0000"}),
        ("figure-3", "Random", {ADAM: "0.0500"}),
        ("figure-3", "Pretrain", {ADAM: "0.1500"}),
        ("figure-3", "Finetune", {ADAM: "0.2000"}),
        ("figure-3", "context", {ADAM: "0.2500"}),
        ("figure-3", "Localtrain", {ADAM: "0.3000"}),
        *(("figure-6", epochs, {"HR@10\nLocaltrain": "0.3000"}) for epochs in ("2", "4", "6", "8", "10")),
    ],
)
def test_cells_of_a_row(name: str, row: str, cells: dict[str, str]) -> None:
    assert_cells(page(name, KNOB if name.startswith("figure") else FOUND), 0, row, cells)


def test_tables_have_a_sheet_per_task_and_the_papers_numbers() -> None:
    *own, printed = page("table-4", FOUND).sheets
    tasks_ = ("arts → office", "office → arts")
    assert [sheet.title for sheet in own] == [f"{task}, cold start (amazon-arts-office)" for task in tasks_]
    assert [row["Music→Books\nHR@10"] for row in printed.rows][:2] == ["0.1403", "0.1692"]
    assert FOUND.fullest([HERE.cell(ASK, "pmf")], of_stage("source", "hybrid", "HR@10")) is None
    assert page("figure-3", KNOB).figure is not None


def test_a_part_of_a_table_leaves_the_papers_rows() -> None:
    found = FinishedRuns({HERE.cell(ASK, "pmf"): {0: PMF}})
    left = {(name, ROWS[name].label) for name in ROWS if name != "pmf"}
    part = page("table-4", found).without(left)
    assert [row["method"] for row in part.sheets[0].rows] == ["PMF, central", "popularity", "chance"]
    assert len(part.sheets[-1].rows) == 9


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
