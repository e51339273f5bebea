"""F3CRec's rows from hand-made summaries with literal numbers."""

import math

import numpy as np
import pytest

from edgefr.metrics.continual import MASKS
from edgefr.report.pages import Page
from edgefr.studies.reproductions.cells import FinishedRuns, change, p_value
from edgefr.studies.reproductions.f3crec import saved_models as saved
from edgefr.studies.reproductions.f3crec import tables
from edgefr.studies.reproductions.f3crec.saved_models import Loss, loss
from edgefr.studies.reproductions.f3crec.tables import F3CREC as PAPER
from edgefr.studies.reproductions.f3crec.tables import average, average_group
from edgefr.studies.reproductions.published import published
from tests.reproduce.summaries import assert_cells, summary

ASK = PAPER.ask("released", [0, 1, 2])


def kept(learned: float, retained: float, forgotten: float) -> dict[str, dict[str, float]]:
    """`continual` of a summary; the history mask adds 0.1."""
    values = {"LA": learned, "RA": retained, "forgetting": forgotten}
    return {m: {n: v + 0.1 * i for n, v in values.items()} for i, m in enumerate(MASKS)}


FT = {s: summary(v - 0.1, v, v + 0.1) | {"continual": kept(0.5, v, 0.3)} for s, v in enumerate((0.2, 0.3, 0.35))}
F3CREC = {s: summary(v, v, v, None) | {"continual": kept(0.4, v, 0.1)} for s, v in enumerate((0.3, 0.5, 0.4))}
SPP = {s: summary(0.3, 0.3, 0.3) | {"continual": kept(0, 0, 0)} for s in (0, 2)}
LESS = dict.fromkeys((0, 1, 2), summary(0.3, 0.3, 0.3))


def found(**by_strategy: dict[int, dict]) -> FinishedRuns:
    names = {name.replace("_", "-"): values for name, values in by_strategy.items()}
    return FinishedRuns({ASK.cell("ml-100k", name, within="fedmf"): values for name, values in names.items()})


def page(name: str, found: FinishedRuns, data: str = "ml-100k") -> Page:
    return PAPER.exhibits[name].page(ASK, found, [data])


MADE = found(ft=FT, f3crec=F3CREC, spp=SPP, f3crec_no_client=LESS)
KNOBS = {name: FinishedRuns({cell: F3CREC}) for name, cell in (
    ("table-8", tables.noisy(ASK, "ml-100k")[0.3]), ("figure-4", tables.turned(ASK, "ml-100k", tables.BETA)[0.3])
)}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number", "row", "cells"),
    [
        ("table-2", 0, "F3CRec", {"D1": "0.4000 ± 0.1000", "D1\npaper": "0.0933", "mean": "0.4000 ± 0.1000"}),
        ("table-2", 0, "F3CRec", {"mean\npaper": "0.1034", "over FT\n%": "+41.18", "over FT %\npaper": "+21.00"}),
        ("table-2", 0, "F3CRec", {"p against\nFT": "0.118", "mean, history\nmasked": "0.4100 ± 0.1000"}),
        ("table-2", 0, "F3CRec", {"mean, known\nusers": "-", "mean, new\nusers": "0.2000 ± 0.0000"}),
        ("table-2", 0, "SPP", {"over FT\n%": "+9.09", "seeds": "2"}),  # 0.6 / 0.55: seeds 0 and 2
        ("table-2", 0, "Reg", {"mean": "-", "seeds": "0"}),
        ("table-2", 0, "FT", {"over FT\n%": ""}),
        ("table-2", 0, "popularity", {"mean": "0.2500 ± 0.0000"}),
        ("table-2", 2, "F3CRec", {"RA\nas released": "0.4000 ± 0.1000", "forgetting\nhistory": "0.2000 ± 0.0000"}),
        ("table-2", 2, "F3CRec", {"p of RA\nhistory": "0.118"}),
        ("table-2", 2, "FT", {"p of RA\nhistory": "", "LA\nhistory": "0.6000 ± 0.0000"}),
        ("table-3", 0, "w/o c.c", {"NDCG@20\ndecrease %": "-25.00", "NDCG@20\ndecrease % paper": "-6.35"}),
        ("table-3", 0, "w/o c.c", {"Recall@20": "0.6000 ± 0.0000"}),
        ("table-3", 0, "FT", {"NDCG@20\np against F3CRec": "0.118"}),
        ("table-3", 0, "F3CRec", {"NDCG@20\ndecrease %": ""}),
        ("table-8", 0, "0.3", {"NDCG@20": "0.4000 ± 0.1000", "NDCG@20\npaper": "0.0951", "seeds": "3"}),
        ("table-8", 0, "0.3", {"NDCG@20\nhistory masked": "0.4100 ± 0.1000", "Recall@20": "0.8000 ± 0.2000"}),
        ("table-8", 0, "0.3", {"Recall@20\npaper": "0.1620", "Recall@20\nhistory masked": "0.8200 ± 0.2000"}),
        ("figure-3", 0, "ml-100k, FedMF", {"improvement\n%": "+16.67", "second best": "SPP", "pairs": "2"}),
        ("figure-3", 0, "ml-100k, FedMF", {"improvement %\npaper": "+8.50", "second best\npaper": "Reg"}),
        ("figure-4", 2, "0.3", {"NDCG@20": "0.4000 ± 0.1000", "Recall@20": "0.8000 ± 0.2000", "seeds": "3"}),
    ],
)
def test_cells_of_a_row(name: str, number: int, row: str, cells: dict[str, str]):
    assert_cells(page(name, KNOBS.get(name, MADE)), number, row, cells)


def test_table_2_has_all_rows_and_says_who_is_above_whom():
    made = page("table-2", MADE)
    sheet, methods = made.sheets[0], ["FT", "Reg", "KD", "RLP2", "SPP", "F3CRec"]
    assert [r["method"] for r in sheet.rows] == [*methods, "popularity", "popularity, all blocks", "chance"]
    assert sheet.bold == [5]
    # two comparisons: the smaller p (FT's 0.1181) counts twice; SPP's differences 0.1 and 0 have t = 1, p = 0.5
    assert "FT +41.18 % (p = 0.236 of 3 pairs), SPP +16.67 % (p = 0.500 of 2 pairs)" in sheet.caption
    assert "not above popularity over all blocks: FT, SPP" in sheet.caption
    head = ("f3crec", "NDCG@20", "mean", "as released", "all")
    mean = next(r for r in made.records if tuple(r[k] for k in ("method", "metric", "on", "mask", "users")) == head)
    assert (mean["mean"], mean["p_against_ft"]) == (pytest.approx(0.4), pytest.approx(0.1181, abs=5e-5))
    assert {r["on"] for r in made.records} == {"D1", "D2", "D3", "mean", "LA", "RA", "forgetting"}
    other = page("table-2", found(spp=SPP)).sheets[0].rows
    assert (other[6]["mean"], other[0]["mean"]) == ("0.2500 ± 0.0000", "-"), "any row that was run has references"


def test_tables_with_nothing_finished():
    nothing = page("table-2", FinishedRuns({}), "hetrec2011")
    assert len(nothing.sheets) == 9
    shown = {row.get(name) for sheet in nothing.sheets for row in sheet.rows for name in ("mean", "RA\nhistory")}
    assert shown == {"-", None}
    assert any("hetrec2011 FedMF Recall@20 (F3CRec)" in note for note in nothing.notes)
    six = page("table-6", FinishedRuns({}), "lastfm-2k").sheets[0].rows
    assert [row["method"] for row in six] == ["F3CRec", "w/o s.c", "w/o i.t.m", "FT"]


def test_changes_and_p_use_the_seeds_that_both_have():
    assert change({0: 1.0, 1: 5.0}, {1: 4.0, 2: 9.0}) == pytest.approx(25.0)
    assert math.isnan(change({0: 1.0}, {1: 1.0}))
    assert p_value({0: 0.3, 1: 0.5, 2: 0.4, 9: 7.0}, {2: 0.35, 1: 0.3, 0: 0.2}) == pytest.approx(0.1181, abs=5e-5)


def test_users_of_a_group_that_no_block_has():
    assert math.isnan(average_group("known_users", "NDCG@20")(summary(0, 0, 0, known=None)))
    assert average_group("new_users", "Recall@20")(summary(0, 0, 0, new=0.2)) == pytest.approx(0.4)
    assert average("Recall@20")(summary(0.1, 0.2, 0.3)) == pytest.approx(0.4)


def test_noise_is_local_laplace_without_a_clip():
    cells = tables.noisy(ASK, "ml-100k")
    assert list(cells) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert cells[0.0].experiment(0).privacy.mechanism == "none"
    privacy = cells[0.3].experiment(0).privacy
    assert (privacy.mechanism, privacy.trust, privacy.scale, privacy.clip) == ("laplace", "local", 0.3, None)
    assert "guarantees no differential privacy" in page("table-8", KNOBS["table-8"]).notes[0]


def test_knobs_of_figure_4():
    cells = tables.turned(ASK, "lastfm-2k", tables.EPSILON)
    assert list(cells) == [0.0001, 0.0003, 0.0005, 0.0007, 0.0009]
    assert cells[0.0007].experiment(0).continual.shift_scale == 0.0007
    betas = tables.turned(ASK, "ml-100k", tables.BETA)
    assert (betas[0.0].row, betas[0.3].experiment(0).aggregation.beta) == ("f3crec-no-server", 0.3)


@pytest.mark.parametrize("name", ["figure-3", "figure-4"])
def test_figures_are_written(name: str, tmp_path):
    assert {p.suffix for p in page(name, KNOBS.get(name, MADE)).write(tmp_path, [])} == {
        ".md",
        ".csv",
        ".tex",
        ".png",
        ".svg",
    }


def test_losses_are_of_groups():
    before, after = np.array([0.4, 0.2, np.nan, 0.0]), np.array([0.1, 0.2, np.nan, 0.0])
    one = loss(before, after, np.array([0, 1, 2]))
    assert (one.before, one.after, one.users) == (pytest.approx(0.3), pytest.approx(0.15), 2)
    assert one.degradation == pytest.approx(0.5)  # of the means: not the mean of 0.75 and 0
    assert math.isnan(loss(before, after, np.array([3])).degradation)
    assert loss(before, after, np.array([2])).users == 0


def test_tables_4_and_5_rows():
    losses = {(m, mask, g): [] for m in saved.METHODS for mask in MASKS for g in saved.GROUPS}
    losses["spp", "as released", "dynamic"] = [Loss(0.2, 0.1, 7), Loss(0.2, 0.05, 9)]
    losses["f3crec", "as released", "dynamic"] = [Loss(0.2, 0.1, 7), Loss(0.2, 0.1, 9)]
    four, five = (
        saved.users_sheet("ml-100k", losses, what, published("f3crec", table)).sheets[0].rows
        for what, table in (("degradation", "table-4"), ("after", "table-5"))
    )
    assert [(row["users"], row["mask"]) for row in four[:2]] == [(g, "as released") for g in ("static", "dynamic")]
    assert (four[1]["SPP"], four[1]["SPP\npaper"]) == ("0.6250 ± 0.1768", "0.7860")
    assert (four[1]["users\nper seed"], four[1]["seeds"]) == ("8", "2")
    assert four[3]["SPP\npaper"] == "-"  # the other mask has no published number
    assert (five[1]["SPP"], five[1]["SPP\npaper"]) == ("0.0750 ± 0.0354", "0.0536")


def test_a_page_without_some_rows():
    whole = page("table-2", MADE)
    cells = ASK.cells("ml-100k", ("reg", "kd", "rlp2", "f3crec"), "fedmf")
    part = whole.without([(cell.row, cell.title) for cell in cells.values()])
    sheet, named = part.sheets[0], ["FT", "SPP", "popularity", "popularity, all blocks", "chance"]
    assert [row["method"] for row in sheet.rows] == named
    assert list(sheet.rules) == [1], "the line stays between methods and references"
    assert list(sheet.bold) == [], "the best row was left out"
    assert {record["method"] for record in part.records} == {"ft", "spp", *named[2:]}
    assert whole.without([]) is whole
