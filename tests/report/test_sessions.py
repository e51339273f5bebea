"""What a summary says of repeats: where nobody has one, it is still a summary."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edge.ragged import Ragged
from edgefr.data.interactions import Dataset
from edgefr.data.splits.sessions import Sessions
from edgefr.data.splits.split import Split
from edgefr.experiment.experiment import load_experiment
from edgefr.metrics.settings import NOTHING, EvaluationSection
from edgefr.report.tables import group_table
from edgefr.simulation.evaluation.measure import MeasurementPlace, Measurements, _head
from edgefr.simulation.evaluation.ranking import Ranking
from edgefr.simulation.loop import Training
from edgefr.simulation.stages.sessions import Met
from edgefr.simulation.summary.summary import summarise_sessions

OVER = ["method=fedmf", "protocol.name=sessions"]

TASK = SimpleNamespace(name="main")


class Unasked(Met):
    """A stage whose model nobody asks for probabilities."""

    def probabilities(self, run: Any, model: Any) -> dict[str, list[float]]:
        return {}


def summary(*seen: bool, few: int = 0) -> dict[str, Any]:
    """The section of a run with twenty test users, ten found first and ten not among ten."""
    measured = Measurements(EvaluationSection(k=[10]), seed=0)
    asked, users = MeasurementPlace("federated", "main"), np.arange(20)
    found = Ranking(users, np.repeat([1, 30], 10)).per_user([10])
    measured._add(_head(asked, "main", "test", "sampled", NOTHING), users, found)
    had = np.repeat(seen, 10)
    had[:few] = False
    measured.groups(asked, cast(Split, TASK), {"seen": had, "new": ~had})
    nothing = Ragged.empty(2)
    sessions = Sessions(nothing, nothing, *[np.zeros(0, np.int64)], nothing, *[np.full(2, -1)] * 2)
    stage = Unasked(
        cast(Split, TASK), 1, dataset=cast(Dataset, None), sessions=sessions, experiment=load_experiment(overrides=OVER)
    )
    sim = SimpleNamespace(
        measured=measured,
        federation=SimpleNamespace(transfer=None),
        schedule=(stage,),
        done=[{"round": 1, "best_round": 1}],
        final=object(),
    )
    return {"sessions": summarise_sessions(cast(Training, sim))}


@pytest.mark.parametrize("nobody", ["seen", "new"])
def test_a_group_of_nobody_has_a_number_and_no_metric(nobody: str):
    found = summary(*[nobody == "new"] * 2)
    json.dumps(found, allow_nan=False)
    groups = found["sessions"]["groups"]["federated"]
    other = {"seen": "new", "new": "seen"}[nobody]
    assert groups[nobody] == {"users": 0}
    assert (groups[other]["users"], groups[other]["HR@10"]) == (20, 0.5)
    sheet = group_table(found)
    assert sheet.rows == [
        {"targets": "federated"}
        | {
            f"{name}\n{group}": "-" if group == nobody else "0.5000"
            for group in groups
            for name in ("HR@10", "NDCG@10")
        }
    ]
    assert sheet.caption.startswith({"seen": "repeat targets: 0;", "new": "repeat targets: 20;"}[nobody])


def test_both_groups_have_their_own_metrics():
    sheet = group_table(summary(True, False))
    assert sheet.rows[0]["HR@10\nseen"] == "1.0000"
    assert sheet.rows[0]["HR@10\nnew"] == "0.0000"


def test_of_a_few_users_a_group_says_so_and_nothing_else():
    """Of twenty users one in a group: its figure, or that of the others beside all of them, would be one person's."""
    from edgefr.report.small_groups import FEW

    found = summary(True, True, few=1)
    assert found["sessions"]["groups"]["federated"] == {"seen": {"users": FEW}, "new": {"users": FEW}}
    assert group_table(found).caption.startswith("repeat targets: fewer than 10 users; new targets: ")
