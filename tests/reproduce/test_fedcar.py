"""FedCAR's tables from hand-made runs with literal numbers, and its recipes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from edgefr.report.pages import Page
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.cells import FinishedRuns
from edgefr.studies.reproductions.fedcar import recipes, tables
from edgefr.studies.reproductions.fedcar.tables import FEDCAR
from edgefr.studies.reproductions.paired import against
from edgefr.studies.tuning.rules import Rules
from privacy.errors import InputError
from tests.reproduce.summaries import assert_cells

ASK = FEDCAR.ask(seeds=[0, 1])
RECIPE = """\
name: fedmf-tuned
method: fedmf
model: {dim: 4, lr: 0.5}
data: ml-100k
protocol: {name: leave-one-out, min_interactions: 6, few: drop}
rounds: 2
"""
RULES = Rules(trials=2, seeds=(1000, 3))


def trials(rules: Rules) -> str:
    """A table of one trial by these rules."""
    return f"trial,{','.join(rules.columns)}\n0,{','.join(rules.columns.values())}\n"


@dataclass
class Made:
    """A run of 40 users who all have these NDCG@10 in full ranking, but for a little that is each user's own."""

    value: float
    path: Path = Path("run")

    @property
    def summary(self) -> dict[str, Any]:
        metrics = {"HR@10": 2 * self.value, "NDCG@10": self.value}
        sampled = {name: value + 0.3 for name, value in metrics.items()}
        levels = {"popularity": {"HR@10": 0.2, "NDCG@10": 0.1}, "chance": {"HR@10": 0.02, "NDCG@10": 0.01}}
        return {
            "metrics": sampled,
            "split": "main",
            "stage": "federated",
            "full_ranking": {"users": 40, "main": {"federated": metrics, **levels}},
            "references": {"main": levels},
            "privacy": {"eps_nominal": 3.0, "eps_guaranteed": "inf", "eps_hypothetical": None},
        }

    @property
    def users(self) -> pd.DataFrame:
        own = self.value + 0.001 * np.sin(np.arange(40) + 100 * self.value)
        rows = {"user": [f"u{n}" for n in range(40)], "stage": "federated", "ranking": "full", "NDCG@10": own}
        other = {**rows, "ranking": "sampled", "NDCG@10": 9.0}
        return pd.concat([pd.DataFrame(rows), pd.DataFrame(other)])


def found(**values: tuple[float, float]) -> FinishedRuns:
    runs = {
        ASK.cell("ml-100k", name.replace("_", "-")): {seed: cast(Run, Made(value)) for seed, value in enumerate(both)}
        for name, both in values.items()
    }
    return FinishedRuns({cell: {seed: run.summary for seed, run in of.items()} for cell, of in runs.items()}, runs)


def page(name: str, found: FinishedRuns, data: str = "ml-100k") -> Page:
    return FEDCAR.exhibits[name].page(ASK, found, [data])


TWO = page("table-2", found(fedmf=(0.08, 0.09), fedcar=(0.10, 0.12), ease=(0.3, 0.3), pfedrec_released=(0.5, 0.5)))


@pytest.mark.parametrize(
    ("number", "row", "cells"),
    [
        (0, "FedMF", {"NDCG@10": "0.0850 ± 0.0071", "n": "40"}),
        (0, "FedMF", {"p\nseeds": "0.126"}),  # t of (-.02, -.03): 5 with one degree of freedom
        (0, "FedCAR", {"against FedCAR": ""}),
        (0, "PFedRec, as released", {"against FedCAR": ""}),  # it knows held-out items
        (0, "popularity", {"NDCG@10": "0.1000 ± 0.0000"}),
        (0, "FedRAP", {"NDCG@10": "-"}),
        (1, "FedCAR", {"NDCG@10": "0.4100 ± 0.0141", "NDCG@10\npaper": "0.2837"}),
        (1, "popularity", {"HR@10": "0.2000 ± 0.0000"}),
    ],
)
def test_cells_of_a_row_of_table_2(number: int, row: str, cells: dict[str, str]):
    assert_cells(TWO, number, row, cells)


def test_table_2_ranks_in_full_first_and_compares_with_fedcar():
    full = TWO.sheets[0]
    rows = {row["method"]: row for row in full.rows}
    assert full.title == "ml-100k, full ranking"
    assert rows["FedMF"]["against FedCAR"].startswith("-0.0250 [-0.02")
    assert rows["EASE^R, central"]["against FedCAR"].startswith("+0.1900 [+0.1")
    assert float(rows["FedMF"]["p\nusers"]) < 0.001
    assert [full.rows[at]["method"] for at in full.bold] == ["FedCAR"]
    said = "the highest federated row by NDCG@10 (full ranking) is FedCAR; FedCAR is above all others (FedMF)"
    assert TWO.notes[0] == f"ml-100k: {said}"


def test_where_fedcar_stands_is_said_by_name():
    made = found(fedmf=(0.2, 0.2), fedcar=(0.1, 0.1), fedrecon=(0.101, 0.099), fedncf=(0.05, 0.05), ease=(0.9, 0.9))
    two = page("table-2", made)
    assert two.notes[0].endswith(
        "is FedMF; FedCAR is above FedNCF; not significantly different from FedRecon; below FedMF"
    ), "a central row is no rival"
    record = next(r for r in two.records if r["method"] == "fedmf" and "difference" in r)
    assert (record["against"], record["n"], round(record["difference"], 3)) == ("fedcar", 40, 0.1)


@pytest.mark.parametrize("values", [{"fedmf": (0.2, 0.2)}, {"fedcar": (0.1, 0.1)}, {"fedcar": (0.1,), "ease": (0.2,)}])
def test_without_fedcar_or_a_rival_nothing_is_compared(values: dict[str, tuple[float, ...]]):
    two = page("table-2", found(**values))
    assert two.notes[0].endswith("nothing is compared, since FedCAR and another are not both finished")
    assert all("difference" not in r for r in two.records if r["kind"] == "federated")


@pytest.mark.slow
def test_among_rows_that_do_not_differ_a_verdict_is_seldom():
    """Of 400 tables of 8 rows alike, fewer than 5 % tell any apart; a winner chosen on the same users is told often."""
    rng, names, told, chosen = np.random.default_rng(0), ["fedcar", *"abcdefg"], 0, 0
    no_seeds: dict[str, dict[int, float]] = {name: {} for name in names}
    for _ in range(400):
        own = rng.normal(0, 1, 60)
        rows = {name: {0: {str(n): x for n, x in enumerate(own + rng.normal(0, 1, 60))}} for name in names}
        told += any(one.users.side for one in against(rows, no_seeds, "fedcar", names).values())
        best = max(names, key=lambda name: sum(rows[name][0].values()))
        chosen += any(one.users.high < 0 for one in against(rows, no_seeds, best, ["fedcar"]).values())
    assert 0.02 <= told / 400 <= 0.08
    assert chosen / 400 > 0.1, "so these tables do show what a choice does"


def test_nothing_finished_is_a_page_all_the_same():
    three = page("table-3", FinishedRuns({}))
    assert three.notes[1] == "ml-100k: no federated row is finished"
    assert [row["method"] for row in three.sheets[0].rows][:4] == [
        *("FedCAR", "FedCAR, context alone", "FedCAR, neither", "GPFedRec")
    ]


def test_pairs_are_users_over_the_seeds_that_both_rows_have():
    rows = {"a": {0: {f"u{n}": 0.5 for n in range(20)}, 1: {f"u{n}": 0.7 for n in range(20)}}}
    rows["b"] = {1: {f"u{n}": 0.4 for n in range(1, 21)}, 2: {f"u{n}": 0.9 for n in range(20)}}
    one = against(rows, {"a": {0: 0.5, 1: 0.7}, "b": {1: 0.4, 2: 0.9}}, "a", rows)["b"]
    assert (one.users.users, one.users.mean) == (19, pytest.approx(-0.3)), "seed 1 alone"
    assert one.p_seeds != one.p_seeds, "one pair of seeds says nothing"
    assert against({"a": rows["a"], "c": {}}, {"a": {0: 0.5}, "c": {}}, "a", "ac") == {}


def test_a_user_whom_some_seeds_alone_rank_is_compared_over_those():
    base = {0: {"u0": 0.1, "u1": 0.2}, 1: {"u1": 0.4, "u2": 0.3}}
    row = {0: {"u0": 0.4, "u1": 0.3}, 1: {"u1": 0.9, "u2": 0.3, "u3": 0.9}}
    rows, no_seeds = {"base": base, "row": row, "apart": {0: {"u2": 0.1}, 1: {"u0": 0.2}}}, dict[int, float]()
    found = against(rows, dict.fromkeys(rows, no_seeds), "base", rows)
    assert list(found) == ["row"], "rows without a user of a seed in common are not compared"
    assert found["row"].users.users == 3
    assert found["row"].users.mean == pytest.approx((0.3 + (0.1 + 0.5) / 2 + 0.0) / 3)


def test_figure_5_keeps_the_kinds_of_epsilon_apart(tmp_path: Path):
    (tmp_path / "audit.json").write_text('{"eps_lb95": 0.25}')
    cell = tables.noisy(ASK, "ml-100k", "fedcar")[0.3]
    run = cast(Run, Made(0.1, tmp_path))
    made = FinishedRuns({cell: {0: run.summary}}, {cell: {0: run}})
    kinds = {"nominal": 3.0, "guaranteed": float("inf"), "hypothetical": None, "audited": 0.25}
    assert tables.epsilons(made, cell) == kinds
    five = page("figure-5", made)
    row = next(r for r in five.sheets[0].rows if (r["method"], r["lambda"]) == ("FedCAR", "0.3"))
    assert (row["eps\nnominal"], row["eps\naudited"], row["eps\nhypothetical"]) == ("3", "0.25", "-")
    assert dict(cell.extra)["privacy.scale"] == 0.3
    assert not tables.noisy(ASK, "ml-100k", "fedcar")[0.0].extra


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe of FedMF that was searched with seeds 1000 and 3."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / recipes.RECIPES / "ml-100k"
    folder.mkdir(parents=True)
    (folder / "fedmf.yaml").write_text(RECIPE)
    (folder / "fedmf.csv").write_text(trials(RULES))
    (tmp_path / recipes.PROTOCOL).write_text(RECIPE.splitlines()[4])
    return folder


def test_a_row_is_its_recipe_with_another_seed(kept: Path):
    cell = FEDCAR.ask(extra={"rounds": 1}).cell("ml-100k", "fedmf")
    experiment = cell.experiment(2)
    assert (experiment.seed, experiment.rounds, experiment.model["lr"], experiment.data) == (2, 1, 0.5, "ml-100k")
    assert cell.values == {"method": "fedmf", "model.dim": 4, "model.lr": 0.5, "rounds": 1}
    before = cell.folder(2)
    (kept / "fedmf.yaml").write_text(RECIPE.replace("0.5", "0.25"))
    assert cell.folder(2) != before, "runs of another recipe are others"


@pytest.mark.parametrize(
    ("row", "was", "now", "told"),
    [
        ("fedmf", "data: ml-100k", "data: demo", "is of data set demo and lies among those of ml-100k"),
        ("fedmf", "few: drop", "few: train", "protocol.few is train, and drop in "),
        ("fedmf", "interactions: 6", "interactions: 5", "protocol.min_interactions is 5, and 6 in "),
        ("pfedrec-released", "data: ml-100k", "data: demo", "is of data set demo"),
    ],
)
def test_a_recipe_of_something_else_is_no_row(kept: Path, row: str, was: str, now: str, told: str):
    (kept / f"{row}.yaml").write_text(RECIPE)
    assert ASK.cell("ml-100k", row).experiment(0)
    (kept / f"{row}.yaml").write_text(RECIPE.replace(was, now))
    with pytest.raises(InputError, match=told):
        ASK.cell("ml-100k", row).experiment(0)


@pytest.mark.parametrize("left", [None, "", "trial,seeds\n0,1000\n"])
def test_a_searched_row_needs_its_trials(kept: Path, left: str | None):
    path = kept / "fedmf.csv"
    path.unlink()
    if left is not None:
        path.write_text(left)
    with pytest.raises(InputError, match=r"fedmf.csv .*edgefr tune"):
        ASK.cell("ml-100k", "fedmf").experiment(0)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (replace(RULES, trials=50), "trials 2 and 50"),
        (replace(RULES, metric="HR@10"), "metric NDCG@10 and HR@10"),
        (replace(RULES, ranking="sampled"), "ranking full and sampled"),
        (replace(RULES, seeds=(1001,)), "seeds 1000 3 and 1001"),
        (replace(RULES, patience=5), "patience 30 and 5"),
        (replace(RULES, prune=True), "prune False and True"),
        (replace(RULES, reported=(0,)), None),
    ],
)
def test_rows_beside_each_other_were_found_by_the_same_rules(kept: Path, other: Rules, told: str | None):
    (kept / "pfedrec.yaml").write_text(RECIPE.replace("fedmf", "pfedrec"))
    (kept / "pfedrec.csv").write_text(trials(other))
    if told is None:
        assert ASK.cell("ml-100k", "fedmf").experiment(0)
        return
    with pytest.raises(InputError, match=rf"fedmf.yaml and .*pfedrec.yaml were chosen by different rules: {told};"):
        ASK.cell("ml-100k", "fedmf").experiment(0)


@pytest.mark.parametrize(
    ("row", "seed", "told"),
    [
        ("fedmf", 3, "was chosen with seed 3"),
        ("fedcar", 0, r"no recipe .*fedcar.yaml yet: make one by edgefr tune fedcar .*--rows"),
        ("fedavg", 0, "fedavg"),
    ],
)
def test_a_seed_of_the_search_and_a_row_without_a_recipe_are_refused(kept: Path, row: str, seed: int, told: str):
    with pytest.raises(InputError, match=told):
        ASK.cell("ml-100k", row).experiment(seed)


def test_data_without_a_search_has_the_recipes_of_ml_100k_for_all_rows_or_for_none(kept: Path):
    cell = ASK.cell("ml-latest-small", "fedmf")
    experiment = cell.experiment(2)
    assert (experiment.data, experiment.model["lr"], cell.values["model.lr"]) == ("ml-latest-small", 0.5, 0.5)
    assert cell.folder(0).startswith("ml-latest-small_fedmf_")
    own = kept.parent / "ml-latest-small"
    own.mkdir()
    (own / "pfedrec-released.yaml").write_text(RECIPE)
    with pytest.raises(InputError, match="is of data set ml-100k and lies among those of ml-latest-small"):
        ASK.cell("ml-latest-small", "pfedrec-released").experiment(0)
    assert cell.experiment(2) == experiment, "rows as released are not searched"
    (own / "fedcar.yaml").write_text(RECIPE)
    with pytest.raises(InputError, match=r"no recipe .*ml-latest-small/fedmf.yaml yet"):
        cell.experiment(2)


def test_a_page_says_where_nothing_was_searched(kept: Path):
    notes = [page("table-2", FinishedRuns({}), data).notes for data in ("ml-100k", "ml-latest-small")]
    assert [any("nothing was searched on it" in note for note in some) for some in notes] == [False, True]
