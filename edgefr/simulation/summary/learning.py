"""This measures whether learning helped: a learned model beside all that needs no learning, user by user.

A learned model is compared with the same model before any round, with chance and with every reference on the same
users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgefr.config import random_streams as purposes
from edgefr.metrics.bootstrap import LEVEL, intervals
from edgefr.report.verdict import UNTRAINED, Verdict, VerdictRow
from privacy import keyed

if TYPE_CHECKING:
    from edgefr.simulation.evaluation.measure import Measurements


def learning(
    measured: Measurements, stage: str, names: Sequence[str], on: Sequence[str], rounds: int = 1
) -> Verdict | None:
    """Compare a learned stage with everything named, on the held-out items of `on` (blocks: averaged over them).

    `rounds` (or epochs) are behind it. Full ranking decides where users were ranked against the whole catalogue.
    Returns None where nobody was asked, or there is nothing to compare with.
    """
    ranking = "full" if (stage, on[-1], "full") in measured.users else "sampled"
    found = [measured.users[stage, name, ranking] for name in on]
    if not all(len(users) for users, _ in found):
        return None
    metric = next(name for name in found[0][1] if name.startswith("NDCG"))
    others = [n for n in names if all((n, name, ranking) in measured.users for name in on)]
    if not others:
        return None
    values = [np.stack([measured.users[n, name, ranking][1][metric] for n in others], axis=1) for name in on]
    parts = [(u, of[metric][:, None] - other) for (u, of), other in zip(found, values, strict=True)]
    apart = intervals(parts, keyed.generator(measured.seed, purposes.BOOTSTRAP))
    means = np.mean([other.mean(axis=0) for other in values], axis=0)
    lines = np.stack([means, apart.mean, apart.low, apart.high], axis=1).tolist()
    against = [
        VerdictRow(name, value, gain, *(end if np.isfinite(end) else None for end in ends))
        for name, (value, gain, *ends) in zip(others, lines, strict=True)
    ]
    own = [row for row in against if row.name in UNTRAINED]
    return Verdict(
        "main",
        stage,
        metric,
        ranking,
        users=len(np.unique(np.concatenate([users for users, _ in found]))),
        value=float(np.mean([of[metric].mean() for _, of in found])),
        against=tuple(against),
        learned=rounds > 0 or all(row.difference for row in own),  # local training may leave another model, too
        level=LEVEL,
    )
