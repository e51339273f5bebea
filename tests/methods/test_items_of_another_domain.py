"""Federated methods whose items are numbers know none of another domain: all are tied, whatever first rows say."""

from __future__ import annotations

import numpy as np
import pytest

from edgefr.experiment.experiment import load_experiment
from tests.federations import begun

ACROSS = (
    "data_options={users: 40, items: 120, interactions: 24}",
    "protocol={name: cross-domain, source: books, target: films, negatives: 20}",
    "rounds=1",
)


@pytest.mark.parametrize("method", ["fcf", "fedmf", "fedcar"])
def test_they_are_tied_before_and_after_rounds(method: str) -> None:
    run = begun(load_experiment(overrides=[f"method={method}", *ACROSS]))
    run.train()
    stages = run.measured.table()["target"]
    assert list(stages)[:4] == ["before any round", "federated", "popularity", "chance"], "nothing is known as context"
    gains = sum(1 / np.log2(1 + rank) for rank in range(1, 11))
    for name in ("before any round", "federated"):
        assert stages[name]["HR@10"] == pytest.approx(10 / 21, abs=1e-12)
        assert stages[name]["NDCG@10"] == pytest.approx(gains / 21, abs=1e-12)
    source = run.measured.table()["source"]
    assert source["federated"]["NDCG@10"] != source["before any round"]["NDCG@10"]
