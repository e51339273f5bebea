"""What a summary says of repeats: where nobody has one, it is still a summary."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edgefr.metrics.ranking import Ranking
from edgefr.metrics.repeats import Repeats, apart
from edgefr.report.sessions import group_table, summarise_sessions
from edgefr.streaming import Streaming

RANKS = Ranking(np.array([0, 1]), np.array([1, 30]))


def summary(*seen: bool) -> dict[str, Any]:
    """The section of a run with two test users, one found first and one not among ten."""
    of = Repeats(np.array([0, 1]), np.array(seen), np.zeros(2, np.bool_))
    sim = SimpleNamespace(
        measured=SimpleNamespace(rows=[]),
        federation=SimpleNamespace(transfer=None),
        sessions=SimpleNamespace(statistics=dict),
        probabilities=dict,
        groups={"federated": apart(RANKS, of, [10])},
        stream="one-pass",
        round=1,
        best_round=1,
    )
    return {"sessions": summarise_sessions(cast(Streaming, sim))}


@pytest.mark.parametrize("nobody", ["seen", "new"])
def test_a_group_of_nobody_has_a_number_and_no_metric(nobody: str):
    found = summary(*[nobody == "new"] * 2)
    json.dumps(found, allow_nan=False)
    groups = found["sessions"]["groups"]["federated"]
    other = {"seen": "new", "new": "seen"}[nobody]
    assert groups[nobody] == {"users": 0}
    assert (groups[other]["users"], groups[other]["HR@10"]) == (2, 0.5)
    sheet = group_table(found)
    assert sheet.rows == [
        {"targets": "federated"}
        | {
            f"{name}\n{group}": "-" if group == nobody else "0.5000"
            for group in groups
            for name in ("HR@10", "NDCG@10")
        }
    ]
    assert sheet.caption.startswith({"seen": "0 targets", "new": "2 targets"}[nobody])


def test_both_groups_have_their_own_metrics():
    sheet = group_table(summary(True, False))
    assert sheet.rows[0]["HR@10\nseen"] == "1.0000"
    assert sheet.rows[0]["HR@10\nnew"] == "0.0000"
