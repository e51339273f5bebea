"""Items that no client has in its training data do not outrank those that some client has."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from edgefr.data.splits.split import Split
from edgefr.experiment.experiment import load_experiment
from tests.federations import begun

SPARSE = ["data_options={users: 60, items: 300, interactions: 12}", "rounds=10", "evaluation.every=10"]


@pytest.mark.parametrize(
    "method",
    ["fedmf", "pfedrec", "fedncf", "gpfedrec", "fedrap", "fedrecon", "fcf", "fedcar", "fedlightgcn", "fedsasrec"],
)
@pytest.mark.parametrize("share", [1.0])
def test_items_that_nobody_has_do_not_outrank_learned_ones(method: str, share: float) -> None:
    run = begun(load_experiment(overrides=[f"method={method}", *SPARSE, f"clients_per_round={share}"]))
    run.train()
    task = cast(Split, run.schedule[0].task)
    count = np.bincount(task.train.values, minlength=len(run.prepared.dataset.catalogue))[task.pool]
    assert (count == 0).sum() > 30
    assert run.final is not None
    scores = np.asarray(run.scorer(run.final, task, task.train)(task.users("test"), None))
    rank = scores.argsort(axis=1).argsort(axis=1).mean(axis=0) / (len(count) - 1)  # 1: the best
    assert rank[count == 0].mean() < rank[count > 0].mean()
    best = np.argsort(-scores, axis=1)[:, :10]
    assert (count[best] == 0).mean() < (count == 0).mean() / 2, "few are among the first ten"
