"""FCUCR's rows as experiments, and tables from hand-made summaries with literal numbers."""

import itertools
import math

import pytest

import edgefr
from edgefr.experiment.unread_settings import read_values
from edgefr.report.pages import Page
from edgefr.studies.reproductions.cells import FinishedRuns
from edgefr.studies.reproductions.fcucr import tables
from edgefr.studies.reproductions.fcucr.recipes import BASELINES, LABELS, ROWS, recipe
from edgefr.studies.reproductions.fcucr.tables import FCUCR, MEASURES, beaten, compared, levels, measure
from privacy.errors import InputError
from tests.reproduce.summaries import assert_cells

ASK = FCUCR.ask("released", [0, 1, 2])


def summary(hit: float, new: float, first: list[float] | None = None, best: int = 7) -> dict:
    """A run with this HR@10, on new targets `new`; popularity reaches 0.25, seen-then-popularity 0.45."""

    def both(value: float) -> dict[str, float]:
        return {"HR@10": value, "NDCG@10": value / 2}

    def table(model: float) -> dict[str, dict[str, float]]:
        return {"federated": both(model), **{n: both(v) for n, v in references.items()}}

    references = {"popularity": 0.25, "seen, then popularity": 0.45, "follows last item": 0.3, "chance": 0.1}
    groups = {n: {"seen": both(v["HR@10"] + 0.1), "new": both(new)} for n, v in table(hit).items()}
    return {
        "stage": "federated",
        "split": "main",
        "metrics": both(hit),
        "stages": {"main": {"federated": both(hit)}},
        "references": {"main": {n: both(v) for n, v in references.items()}},
        "full_ranking": {"users": 5, "main": table(hit / 10)},
        "sessions": {
            "best_round": best,
            "rounds": 4,
            "groups": groups,
            "first_session": {} if first is None else {"HR@10": first},
            "probabilities": {"edges": [0.0, 0.5, 0.9, 1.0], "targets": [0.2, 0.5, 0.3], "negatives": [0.8, 0.1, 0.1]},
        },
        "engine": {"train_seconds": 6.0},
    }


ALONE = {0: summary(0.2, 0.1), 1: summary(0.3, 0.1), 2: summary(0.35, 0.1)}
WITH = {0: summary(0.3, 0.09), 1: summary(0.5, 0.1), 2: summary(0.4, 0.08)}
CURVES = {0: summary(0.3, 0.1, [0.2, 0.6, 0.4]), 1: summary(0.3, 0.1, [0.4, 0.8])}


def found(data: str = "xing", **by_row: dict[int, dict]) -> FinishedRuns:
    return FinishedRuns({ASK.cell(data, row.replace("_", "-")): made for row, made in by_row.items()})


def page(name: str, found: FinishedRuns, data: str = "xing") -> Page:
    return FCUCR.exhibits[name].page(ASK, found, [data])


BOTH = found(sasrec=ALONE, fcucr_sasrec=WITH)
OF = tables.lines(ASK, "xing", ("fcucr-sasrec", "sasrec", "no-tasd"))


@pytest.mark.parametrize(("row", "fidelity"), itertools.product(ROWS, ("released", "paper")))
def test_every_row_is_a_valid_experiment(row, fidelity):
    made = FCUCR.ask(fidelity).cell("xing", row).experiment(3)
    assert (made.data, made.seed, made.rounds) == ("xing", 3, 40)
    assert made.fidelity == ("ours" if row in BASELINES else fidelity), "of a baseline there is no released code"
    assert made.local_epochs == (1 if row in ("fedrap", "gpfedrec") else 4)
    assert made.protocol.stream == {"released": "cyclic", "paper": "one-pass"}[fidelity]
    assert made.evaluation.k == [10]
    if row not in BASELINES:
        assert made.aggregation.weights == {"released": "uniform", "paper": "size"}[fidelity]


def test_rows_differ_by_what_their_names_say():
    rows = [row for row in ROWS if row not in BASELINES]
    models = {row: read_values(ASK.cell("xing", row).experiment(0))["model"] for row in rows}
    whole = models["fcucr-sasrec"]
    assert (whole["teacher"], whole["prototypes"], whole["personal"]) == ("received_global", "trained", True)
    taught = {"distill", "distill_weight", "distill_first", "distill_over"}
    sent = {"pooling", "asks_when_recommending", "receiver_noise", "prototype_of", "query"}
    assert models["no-tasd"] == {k: v for k, v in whole.items() if k not in taught} | {"teacher": "none"}
    assert models["no-iupr"] == {k: v for k, v in whole.items() if k not in sent} | {"prototypes": "none"}
    alone = {k: v for k, v in whole.items() if k not in taught | sent}
    assert models["no-both"] == alone | {"teacher": "none", "prototypes": "none"}
    assert models["history"] == whole
    assert (models["sasrec"]["personal"], models["sasrec"]["teacher"]) == (False, "none")
    windows = {k: v for k, v in whole.items() if k not in ("heads", "layers", "masked")}
    assert models["fcucr-gru4rec"] == windows | {"encoder": "gru4rec"}


def test_a_stream_of_its_own_is_another_cell_and_the_usual_one_is_not():
    usual = ASK.cell("xing", "sasrec")
    assert FCUCR.ask("released", stream="cyclic").cell("xing", "sasrec") == usual
    other = FCUCR.ask("released", stream="one-pass").cell("xing", "sasrec")
    assert other.experiment(0).protocol.stream == "one-pass"
    assert other.folder(0) != usual.folder(0) != usual.folder(1)
    with pytest.raises(InputError, match="sasreck"):
        recipe("sasreck", "released")


def test_the_usual_point_of_a_knob_is_the_row_itself():
    plain = ASK.cell("xing", "fcucr-sasrec")
    made = plain.experiment(0)
    own = {f"knowledge.{name}": getattr(made.knowledge, name) for name in ("window", "interval", "top_k")}
    assert own | {"model.distill_weight": made.model["distill_weight"]} == tables.USUAL
    for knob, usual in tables.USUAL.items():
        cells = tables.turned(ASK, "xing", knob)
        assert [value for value, cell in cells.items() if cell == plain] == [usual]


def test_noise_has_the_paper_s_standard_deviation():
    cells = tables.noisy(FCUCR.ask("paper"), "xing")
    uploads = cells[tables.UPLOADS][0.2].experiment(0)
    assert (uploads.privacy.mechanism, uploads.privacy.trust) == ("paper-laplace", "local")
    assert math.sqrt(2) * uploads.privacy.scale == pytest.approx(0.2, abs=1e-6)  # variance of a Laplace: 2 b^2
    assert cells[tables.REPLIES][0.2].experiment(0).model["receiver_noise"] == 0.2
    assert uploads.aggregation.weights == "uniform"
    assert cells[tables.UPLOADS][0.0] == cells[tables.REPLIES][0.0]


@pytest.mark.parametrize(
    ("name", "number", "row", "cells"),
    [
        ("table-3", 0, "FCUCR (SASRec)", {"HR@10": "0.4000 ± 0.1000", "HR@10\n(paper)": "0.2882", "seeds": "3"}),
        ("table-3", 0, "FCUCR (SASRec)", {"HR@10\nnew": "0.0900 ± 0.0100", "HR@10\nseen": "0.5000 ± 0.1000"}),
        ("table-3", 0, "FCUCR (SASRec)", {"HR@10\nall items": "0.0400 ± 0.0100", "best\nround": "7"}),
        ("table-3", 0, "FCUCR (SASRec)", {"NDCG@10\nall items": "0.0200 ± 0.0050"}),
        ("table-3", 0, "personal MLP alone", {"HR@10": "-", "HR@10\n(paper)": "-"}),
        ("table-3", 0, "seen, then popularity", {"HR@10": "0.4500 ± 0.0000"}),
        ("table-2", 2, "HR@10", {"gain\n%": "+41.2", "p": "0.118", "gain %\n(paper)": "+60.1"}),
        # 1.2 / 0.85; of differences 0.1, 0.2, 0.05; .2882 / .1800
        ("table-2", 2, "HR@10, new", {"gain\n%": "-10.0", "gain %\n(paper)": "-"}),
        ("table-4", 0, "all rounds", {"HR@10": "0.4000 ± 0.1000", "HR@10\n(paper)": "0.2882"}),
        ("table-4", 0, "all rounds", {"seconds\nper round": "1.50", "seconds\n(paper)": "672"}),
        ("table-4", 0, "last 2", {"HR@10": "-", "NDCG@10\n(paper)": "0.1985"}),
        ("figure-3", 0, "k 20", {"HR@10": "0.4000 ± 0.1000"}),
        ("figure-3", 1, "lambda 10", {"HR@10": "0.4000 ± 0.1000"}),
        ("figure-2", 0, "FCUCR (SASRec)", {"round 1": "0.300", "round 2": "0.700", "round 5": "-"}),
        ("figure-2", 0, "FCUCR (SASRec)", {"best": "0.700", "best - last": "0.000"}),
        ("figure-2", 0, "Fed-SASRec", {"round 1": "-"}),
        ("figure-2", 1, "FCUCR (SASRec)", {"targets\nfrom 0.5": "0.800", "targets\nfrom 0.9": "0.300"}),
        ("figure-2", 1, "FCUCR (SASRec)", {"negatives\nfrom 0.5": "0.200", "negatives\nfrom 0.9": "0.100"}),
    ],
)
def test_cells_of_a_row(name: str, number: int, row: str, cells: dict[str, str]):
    assert_cells(page(name, found(fcucr_sasrec=CURVES) if name == "figure-2" else BOTH), number, row, cells)


def test_levels_have_references_below_and_the_best_in_bold():
    made = levels(BOTH, "t", [OF["sasrec"], OF["fcucr-sasrec"], OF["no-tasd"]])
    (sheet,) = made.sheets
    named = ["popularity", "seen, then popularity", "co-occurrence with the last item", "chance"]
    assert [row["model"] for row in sheet.rows][3:] == named
    assert (sheet.bold, sheet.rules) == ([1], [2])
    at = {(r["row"], r["measure"]): r["mean"] for r in made.records}
    assert (at["FCUCR (SASRec)", "HR@10"], at["popularity", "HR@10"]) == (pytest.approx(0.4), pytest.approx(0.25))


def test_gains_are_over_seeds_that_both_have():
    made = compared(BOTH, "t", OF["fcucr-sasrec"], OF["sasrec"])
    assert [row["measure"] for row in made.sheets[0].rows] == list(MEASURES)
    assert {r["pairs"] for r in made.records} == {3}
    some = found(sasrec={1: ALONE[1]}, fcucr_sasrec=WITH)
    fewer = compared(some, "t", OF["fcucr-sasrec"], OF["sasrec"]).records[0]
    assert (fewer["pairs"], fewer["gain_percent"]) == (1, pytest.approx(100 * (0.5 / 0.3 - 1)))
    nothing = compared(FinishedRuns({}), "t", OF["sasrec"], OF["no-tasd"])
    assert {row["gain\n%"] for row in nothing.sheets[0].rows} == {"-"}
    assert {r["pairs"] for r in nothing.records} == {0}


def test_plain_words():
    (said,) = compared(BOTH, "t", OF["fcucr-sasrec"], OF["sasrec"]).said
    assert "on all targets +41.2 %, not told from chance (p 0.118)" in said
    assert "on new targets -10.0 %, not told from chance" in said
    assert "not run" in compared(BOTH, "t", OF["fcucr-sasrec"], OF["no-tasd"]).said[0]
    lines = beaten(BOTH, list(OF.values()))
    assert lines[0] == "popularity (xing, HR@10 0.2500): beaten by FCUCR (SASRec), Fed-SASRec"
    assert lines[1] == "seen, then popularity (xing, HR@10 0.4500): beaten by none"
    assert lines[3] == "popularity (xing, HR@10, new 0.0900): beaten by Fed-SASRec; not beaten by FCUCR (SASRec)"
    better = found(sasrec=ALONE, fcucr_sasrec={seed: summary(0.5, 0.2) for seed in range(3)})
    assert "0.4500): beaten by FCUCR (SASRec); not beaten by Fed-SASRec" in beaten(better, list(OF.values()))[1]


def test_tables_have_their_rows_and_say_what_they_come_to():
    two, three, seven = (page(name, BOTH) for name in ("table-2", "figure-3", "figure-7"))
    first = ["PFedRec", "FedRAP", "GPFedRec", "Fed-DMI-GNN", "Fed-HearInt", "Fed-MiaSRec", "Fed-GRU4Rec"]
    assert [row["model"] for row in two.sheets[0].rows][:7] == first
    assert [len(page(name, BOTH).sheets) for name in ("table-2", "table-3")] == [4, 4]
    assert "FCUCR (SASRec) against Fed-SASRec, xing, HR@10: on all targets +41.2 %" in two.notes[1]
    assert any("Fed-DMI-GNN" in note for note in two.notes)
    assert {row["HR@10"] for row in page("table-2", FinishedRuns({})).sheets[0].rows} == {"-"}
    assert set(LABELS) == set(ROWS)
    rounds = [row["rounds"] for row in page("table-4", BOTH).sheets[0].rows]
    assert rounds[:5] == ["this round", "last 2", "last 3", "last 5", "all rounds"]
    seconds = [row["seconds\n(paper)"] for row in page("table-5", BOTH).sheets[0].rows]
    assert seconds[:5] == ["672", "643", "634", "619", "598"]
    assert [row["k"] for row in three.sheets[0].rows][:6] == [f"k {k}" for k in (1, 5, 20, 100, 200, 1000)]
    assert "seen, then popularity (xing, HR@10 0.4500): beaten by none" in three.notes
    epsilons = [row["epsilon\n(paper)"] for row in seven.sheets[0].rows]
    assert epsilons[:7] == ["inf", "48.45", "24.22", "16.15", "12.11", "9.69", "8.07"]
    assert three.figure is not None
    assert len(seven.figure.axes) == 2


def test_each_data_set_of_the_paper_has_its_figure():
    drawn = {name: list(exhibit.data) for name, exhibit in FCUCR.exhibits.items() if name.startswith("figure")}
    alone = {f"figure-{n}": [FCUCR.exhibits["table-2"].data[(n - 3) % 4]] for n in range(3, 11)}
    assert drawn == {"figure-2": ["xing"], **alone}
    for name, (data,) in alone.items():
        made = page(name, FinishedRuns({}), data)
        assert (made.name, made.title[: len(name) + 6]) == (name, f"FCUCR F{name[1:].replace('-', ' ')}")
        assert all(data in sheet.title for sheet in made.sheets)


def test_other_data_sets_have_no_published_numbers_beside_theirs():
    some = found("ml-100k", fcucr_sasrec=WITH, sasrec=ALONE)
    two, four, five = (page(name, some, "ml-100k") for name in ("table-2", "table-4", "table-5"))
    whole = next(row for row in two.sheets[0].rows if row["model"] == "FCUCR (SASRec)")
    assert whole["HR@10"] == "0.4000 ± 0.1000"
    assert {r["published"] for made in (two, four, five) for r in made.records if "published" in r} == {None}
    assert four.sheets[0].rows[4]["seconds\nper round"] == "1.50"
    assert all("seconds\n(paper)" not in row for row in four.sheets[0].rows)


def test_sessions_of_any_data_set_may_be_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"ml-100k.* is not there"):
        edgefr.reproduce("fcucr", data=["ml-100k"], data_dir=tmp_path, out=tmp_path / "out")
    with pytest.raises(InputError, match="data set of F3CRec 'xing'"):
        edgefr.reproduce("f3crec", data=["xing"], data_dir=tmp_path, out=tmp_path / "out")


def test_what_was_not_measured_is_no_number():
    assert math.isnan(measure("HR@10", "no such")(ALONE[0]))
    assert math.isnan(measure("HR@10, seen")({**ALONE[0], "sessions": {"groups": {}}}))
