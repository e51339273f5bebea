"""The leaderboard from hand-made runs with literal numbers, and which of its rows can have noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
import pytest

from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.cells import FinishedRuns
from edgefr.studies.reproductions.leaderboard.tables import LEADERBOARD, LISTED, panels, private
from tests.reproduce import test_fedcar as fedcar
from tests.reproduce.summaries import assert_cells

ASK = LEADERBOARD.ask(seeds=[0, 1])
(EXHIBIT,) = LEADERBOARD.listed
REFERENCES = {"before any round": 0.003, "hybrid": 0.15}
SERVER_RATE = ("aggregation.server_lr", "auto")


@dataclass
class Made(fedcar.Made):
    """A run whose round costs a client something."""

    @property
    def summary(self) -> dict[str, Any]:
        costs = {"bytes_down": 2e5, "bytes_up": 1e5, "energy_j": 0.75, "seconds": 1.5}
        found = super().summary
        levels = found["full_ranking"]["main"]
        levels |= {name: {"HR@10": 2 * ndcg, "NDCG@10": ndcg} for name, ndcg in REFERENCES.items()}
        return {**found, "fleet": {name: {"p50": value} for name, value in costs.items()}}

    @property
    def metrics(self) -> pd.DataFrame:
        """Validation by full ranking after rounds 0 and 5, and what else such a table has."""
        line = {"which": "valid", "ranking": "full", "metric": "NDCG@10", "round": 0.0, "value": self.value / 2}
        other = [{**line, "which": "test"}, {**line, "ranking": "sampled"}, {**line, "round": None, "value": 9.0}]
        return pd.DataFrame([line, {**line, "round": 5.0, "value": self.value}, *other])


def found() -> FinishedRuns:
    values = {"fedmf": 0.05, "pfedrec": 0.07, "gpfedrec": 0.06, "ease": 0.09}
    cells = {ASK.cell("ml-100k", name): value for name, value in values.items()}
    noised = private(ASK, "ml-100k", "fedmf")
    assert noised is not None
    runs = {cell: {0: cast(Run, Made(value)), 1: cast(Run, Made(value))} for cell, value in cells.items()}
    runs[noised] = {0: cast(Run, Made(0.02))}
    return FinishedRuns({cell: {seed: run.summary for seed, run in of.items()} for cell, of in runs.items()}, runs)


PAGE = EXHIBIT.page(ASK, found(), ["ml-100k"])


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("FedMF", {"NDCG@10": "0.0500 ± 0.0000", "against FedMF": "", "MB\na round": "0.3", "J\na round": "0.75"}),
        ("FedMF", {"NDCG@10\nepsilon 8": "0.0200", "s\na round": "1.5", "seeds": "2"}),
        ("PFedRec", {"NDCG@10\nepsilon 8": "-", "NDCG@10\nunlearned": "0.0030"}),  # with noise not run yet
        ("hybrid", {"NDCG@10": "0.1500 ± 0.0000", "NDCG@10\nunlearned": ""}),
        ("GPFedRec", {"NDCG@10\nepsilon 8": "-"}),  # refused
        ("EASE^R, central", {"NDCG@10\nepsilon 8": "", "MB\na round": "", "NDCG@10\nunlearned": "", "seeds": "2"}),
        ("popularity", {"NDCG@10": "0.1000 ± 0.0000", "J\na round": ""}),
    ],
)
def test_cells(row: str, cells: dict[str, str]) -> None:
    assert_cells(PAGE, 0, row, cells)


def test_the_highest_is_on_top_and_what_is_not_run_at_the_end() -> None:
    order = [row["method"] for row in PAGE.sheets[0].rows]
    assert order[:4] == ["EASE^R, central", "PFedRec", "GPFedRec", "FedMF"]
    assert order[-3:] == ["hybrid", "popularity", "chance"]
    (record,) = [one for one in PAGE.records if one["method"] == "fedmf" and one["metric"] == "HR@10"]
    assert record["NDCG@10_at_epsilon_8"] == 0.02
    assert record["seeds_with_noise"] == 1


def test_rows_with_noise_are_those_whose_method_bounds_what_a_client_adds() -> None:
    cells = {row: private(ASK, "ml-100k", row) for row in LISTED}
    refused = {"gpfedrec", "fedcar", "mf-bpr", "mf-bce", "neumf", "ease"}
    assert {row for row, cell in cells.items() if cell is None} == refused
    made = {row: cell.experiment(0) for row, cell in cells.items() if cell is not None}
    assert {(one.privacy.mechanism, one.privacy.epsilon, one.privacy.clip) for one in made.values()} == {
        ("gaussian", 8.0, 1.0)
    }
    assert {row for row, cell in cells.items() if cell and SERVER_RATE not in cell.extra} == {"fcf"}


def test_curves_are_of_validation_items_by_round_and_by_what_was_moved() -> None:
    rounds, moved = panels(found(), ASK.cells("ml-100k", ["fedmf", "ease", "fcf"]), "ml-100k")
    assert set(rounds.curves) == {"FedMF", "FCF"}, "central rows have no rounds"
    assert {at: spread.mean for at, spread in rounds.curves["FedMF"].items()} == {0: 0.025, 5: 0.05}
    assert [round(at, 6) for at in moved.curves["FedMF"]] == [0.0, 1.5]
    assert rounds.curves["FCF"] == {}, "it has not been run"
