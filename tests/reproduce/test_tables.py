"""Rows from hand-made summaries with literal numbers."""

import math

import numpy as np
import pytest

from edgefr.metrics.continual import MASKS
from edgefr.report.pages import Page
from edgefr.studies.reproductions.cells import FinishedRuns, change, p_value
from edgefr.studies.reproductions.f3crec import rank_moves as moved
from edgefr.studies.reproductions.f3crec import tables
from edgefr.studies.reproductions.f3crec.rank_moves import Loss, loss
from edgefr.studies.reproductions.f3crec.tables import F3CREC as PAPER
from edgefr.studies.reproductions.f3crec.tables import METHODS, average, average_group
from edgefr.studies.reproductions.published import published
from tests.reproduce.summaries import summary

ASK = PAPER.ask("released", [0, 1, 2])
ALL = ASK.cells("ml-100k", METHODS, "fedmf")
FT = {seed: summary(v - 0.1, v, v + 0.1) for seed, v in enumerate((0.2, 0.3, 0.35))}
F3CREC = {seed: summary(v, v, v, known=None) for seed, v in enumerate((0.3, 0.5, 0.4))}
SPP = {0: summary(0.3, 0.3, 0.3), 2: summary(0.3, 0.3, 0.3)}


def found(**by_strategy: dict[int, dict]) -> FinishedRuns:
    names = {name.replace("_", "-"): values for name, values in by_strategy.items()}
    return FinishedRuns({ASK.cell("ml-100k", name, within="fedmf"): values for name, values in names.items()})


def page(name: str, found: FinishedRuns, data: str = "ml-100k") -> Page:
    return PAPER.exhibits[name].page(ASK, found, [data])


def by_method(sheet) -> dict[str, dict[str, str]]:
    return {row["method"]: row for row in sheet.rows}


def test_table_2_rows():
    made = tables.compared(found(ft=FT, f3crec=F3CREC, spp=SPP), ALL, "NDCG@20")
    (sheet,), records = made.sheets, made.records
    rows = by_method(sheet)
    assert list(rows) == ["FT", "Reg", "KD", "RLP2", "SPP", "F3CRec", "popularity", "popularity, all blocks", "chance"]
    best = rows["F3CRec"]
    assert (best["D1"], best["D1\npaper"]) == ("0.4000 ± 0.1000", "0.0933")
    assert (best["mean"], best["mean\npaper"]) == ("0.4000 ± 0.1000", "0.1034")
    assert best["over FT\n%"] == "+41.18"  # 1.2 / 0.85
    assert best["over FT %\npaper"] == "+21.00"
    assert best["p against\nFT"] == "0.118"
    assert best["mean, history\nmasked"] == "0.4100 ± 0.1000"
    assert (best["mean, known\nusers"], best["mean, new\nusers"]) == ("-", "0.2000 ± 0.0000")
    assert rows["SPP"]["over FT\n%"] == "+9.09"  # 0.6 / 0.55: seeds 0 and 2
    assert (rows["SPP"]["seeds"], rows["Reg"]["seeds"], rows["Reg"]["mean"]) == ("2", "0", "-")
    assert rows["FT"]["over FT\n%"] == ""
    assert rows["popularity"]["mean"] == "0.2500 ± 0.0000"
    assert sheet.bold == [5]
    # two comparisons: the smaller p (FT's 0.1181) counts twice; SPP's differences 0.1 and 0 have t = 1, p = 0.5
    assert "FT +41.18 % (p = 0.236 of 3 pairs), SPP +16.67 % (p = 0.500 of 2 pairs)" in sheet.caption
    assert "not above popularity over all blocks: FT, SPP" in sheet.caption
    mean = next(r for r in records if (r["method"], r["on"], r["mask"]) == ("f3crec", "mean", "as released"))
    assert mean["mean"] == pytest.approx(0.4)
    assert mean["p_against_ft"] == pytest.approx(0.1181, abs=5e-5)


def test_table_2_with_nothing_finished():
    nothing = page("table-2", FinishedRuns({}), "hetrec2011")
    assert len(nothing.sheets) == 9
    assert {row["mean"] for sheet in nothing.sheets for row in sheet.rows if "mean" in row} == {"-"}
    assert {row["RA\nhistory"] for sheet in nothing.sheets for row in sheet.rows if "RA\nhistory" in row} == {"-"}
    assert any("hetrec2011 FedMF Recall@20 (F3CRec)" in note for note in nothing.notes)


def test_what_is_kept():
    kept = {seed: summary(0, 0, 0) | {"continual": table(0.4, v, 0.1)} for seed, v in enumerate((0.3, 0.5, 0.4))}
    less = {seed: summary(0, 0, 0) | {"continual": table(0.5, v, 0.3)} for seed, v in enumerate((0.2, 0.3, 0.35))}
    made = tables.kept_sheet(found(ft=less, f3crec=kept), ALL)
    rows, records = by_method(made.sheets[0]), made.records
    assert rows["F3CRec"]["RA\nas released"] == "0.4000 ± 0.1000"
    assert rows["F3CRec"]["forgetting\nhistory"] == "0.2000 ± 0.0000"
    assert rows["F3CRec"]["p of RA\nhistory"] == "0.118"
    assert (rows["FT"]["p of RA\nhistory"], rows["FT"]["LA\nhistory"]) == ("", "0.6000 ± 0.0000")
    assert {r["on"] for r in records} == {"LA", "RA", "forgetting"}


def table(learned: float, retained: float, forgotten: float) -> dict[str, dict[str, float]]:
    """`continual` of a summary; the history mask adds 0.1."""
    names = ("LA", "RA", "forgetting")
    values = (learned, retained, forgotten)
    return {m: {n: v + 0.1 * i for n, v in zip(names, values, strict=True)} for i, m in enumerate(MASKS)}


def test_changes_and_p_use_the_seeds_that_both_have():
    assert change({0: 1.0, 1: 5.0}, {1: 4.0, 2: 9.0}) == pytest.approx(25.0)
    assert math.isnan(change({0: 1.0}, {1: 1.0}))
    assert p_value({0: 0.3, 1: 0.5, 2: 0.4, 9: 7.0}, {2: 0.35, 1: 0.3, 0: 0.2}) == pytest.approx(0.1181, abs=5e-5)


def test_users_of_a_group_that_no_block_has():
    assert math.isnan(average_group("known_users", "NDCG@20")(summary(0, 0, 0, known=None)))
    assert average_group("new_users", "Recall@20")(summary(0, 0, 0, new=0.2)) == pytest.approx(0.4)
    assert average("Recall@20")(summary(0.1, 0.2, 0.3)) == pytest.approx(0.4)


def test_ablation_rows():
    less = {0: summary(0.3, 0.3, 0.3), 1: summary(0.3, 0.3, 0.3), 2: summary(0.3, 0.3, 0.3)}
    rows = by_method(page("table-3", found(f3crec=F3CREC, f3crec_no_client=less, ft=FT)).sheets[0])
    assert list(rows) == ["F3CRec", "w/o c.c", "w/o a.r.m", "FT"]
    assert rows["w/o c.c"]["NDCG@20\ndecrease %"] == "-25.00"
    assert rows["w/o c.c"]["NDCG@20\ndecrease % paper"] == "-6.35"
    assert rows["w/o c.c"]["Recall@20"] == "0.6000 ± 0.0000"
    assert rows["FT"]["NDCG@20\np against F3CRec"] == "0.118"
    assert rows["F3CRec"]["NDCG@20\ndecrease %"] == ""
    assert [row["method"] for row in page("table-6", FinishedRuns({}), "lastfm-2k").sheets[0].rows] == [
        "F3CRec", "w/o s.c", "w/o i.t.m", "FT",
    ]  # fmt: skip


def test_noise_is_local_laplace_without_a_clip():
    cells = tables.noisy(ASK, "ml-100k")
    assert list(cells) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert cells[0.0].experiment(0).privacy.mechanism == "none"
    privacy = cells[0.3].experiment(0).privacy
    assert (privacy.mechanism, privacy.trust, privacy.scale, privacy.clip) == ("laplace", "local", 0.3, None)
    eight = page("table-8", FinishedRuns({cells[0.3]: F3CREC}))
    assert eight.sheets[0].rows[3] == {
        "noise\nlambda": "0.3",
        "NDCG@20": "0.4000 ± 0.1000",
        "NDCG@20\npaper": "0.0951",
        "NDCG@20\nhistory masked": "0.4100 ± 0.1000",
        "Recall@20": "0.8000 ± 0.2000",
        "Recall@20\npaper": "0.1620",
        "Recall@20\nhistory masked": "0.8200 ± 0.2000",
        "seeds": "3",
    }
    assert "guarantees no differential privacy" in eight.notes[0]


def test_knobs_of_figure_4(tmp_path):
    cells = tables.turned(ASK, "lastfm-2k", tables.EPSILON)
    assert list(cells) == [0.0001, 0.0003, 0.0005, 0.0007, 0.0009]
    assert cells[0.0007].experiment(0).continual.shift_scale == 0.0007
    betas = tables.turned(ASK, "ml-100k", tables.BETA)
    assert betas[0.0].row == "f3crec-no-server"
    assert betas[0.3].experiment(0).aggregation.beta == 0.3
    four = page("figure-4", FinishedRuns({betas[0.3]: F3CREC}))
    assert {p.suffix for p in four.write(tmp_path, [])} == {".md", ".csv", ".png", ".svg"}
    row = next(row for row in four.sheets[2].rows if row["beta"] == "0.3")
    assert row == {"beta": "0.3", "NDCG@20": "0.4000 ± 0.1000", "Recall@20": "0.8000 ± 0.2000", "seeds": "3"}


def test_figure_3_is_over_the_best_of_the_others(tmp_path):
    three = page("figure-3", found(ft=FT, f3crec=F3CREC, spp=SPP))
    row = three.sheets[0].rows[0]
    assert (row["improvement\n%"], row["second best"], row["pairs"]) == ("+16.67", "SPP", "2")
    assert (row["improvement %\npaper"], row["second best\npaper"]) == ("+8.50", "Reg")  # 0.1034 / 0.0953
    assert {p.suffix for p in three.write(tmp_path, [])} == {".md", ".csv", ".png", ".svg"}


def test_losses_are_of_groups():
    before, after = np.array([0.4, 0.2, np.nan, 0.0]), np.array([0.1, 0.2, np.nan, 0.0])
    one = loss(before, after, np.array([0, 1, 2]))
    assert (one.before, one.after, one.users) == (pytest.approx(0.3), pytest.approx(0.15), 2)
    assert one.degradation == pytest.approx(0.5)  # of the means: not the mean of 0.75 and 0
    assert math.isnan(loss(before, after, np.array([3])).degradation)
    assert loss(before, after, np.array([2])).users == 0


def test_tables_4_and_5_rows():
    losses = {(m, mask, g): [] for m in moved.METHODS for mask in MASKS for g in moved.GROUPS}
    losses["spp", "as released", "dynamic"] = [Loss(0.2, 0.1, 7), Loss(0.2, 0.05, 9)]
    losses["f3crec", "as released", "dynamic"] = [Loss(0.2, 0.1, 7), Loss(0.2, 0.1, 9)]
    (sheet,) = moved.users_sheet("ml-100k", losses, "degradation", published("f3crec", "table-4")).sheets
    assert [(row["users"], row["mask"]) for row in sheet.rows[:2]] == [
        ("static", "as released"),
        ("dynamic", "as released"),
    ]
    row = sheet.rows[1]
    assert (row["SPP"], row["SPP\npaper"]) == ("0.6250 ± 0.1768", "0.7860")
    assert (row["users\nper seed"], row["seeds"]) == ("8", "2")
    assert sheet.rows[3]["SPP\npaper"] == "-"  # the other mask has no published number
    (sheet,) = moved.users_sheet("ml-100k", losses, "after", published("f3crec", "table-5")).sheets
    assert (sheet.rows[1]["SPP"], sheet.rows[1]["SPP\npaper"]) == ("0.0750 ± 0.0354", "0.0536")


def test_a_page_without_some_rows():
    made = tables.compared(found(ft=FT, f3crec=F3CREC, spp=SPP), ALL, "NDCG@20")
    whole = Page("table-2", "Table 2", made.sheets, made.records)
    part = whole.without([ALL[name].part[:2] for name in ("reg", "kd", "rlp2", "f3crec")])
    sheet = part.sheets[0]
    assert [row["method"] for row in sheet.rows] == ["FT", "SPP", "popularity", "popularity, all blocks", "chance"]
    assert list(sheet.rules) == [1], "the line stays between methods and references"
    assert list(sheet.bold) == [], "the best row was left out"
    named = {"ft", "spp", "popularity", "popularity, all blocks", "chance"}
    assert {record["method"] for record in part.records} == named
    assert whole.without([]) is whole


def test_references_come_from_any_row_that_was_run():
    rows = by_method(tables.compared(found(spp=SPP), ALL, "NDCG@20").sheets[0])
    assert (rows["popularity"]["mean"], rows["FT"]["mean"]) == ("0.2500 ± 0.0000", "-")
