"""Rows are compared over users and over seeds, each with the best one; p-values over users are Holm's.

Over users: a user's metric is its mean over the seeds that both rows have, an interval is the paired bootstrap's and p
Wilcoxon's signed-rank test's. Over seeds: the paired t-test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr import purposes
from edgefr.metrics.bootstrap import intervals
from edgefr.metrics.significance import holm, wilcoxon
from edgefr.reproductions.cells import BySeed, p_value
from edgefr.run import Run
from privacy import keyed

ByUser = Mapping[int, Mapping[str, float]]
"""A metric of every user, by seed and the user's name."""


@dataclass(frozen=True)
class Against:
    """This says how far a row is from the best one: the mean over users, its 95 % interval, and p by two tests."""

    mean: float
    low: float
    high: float
    p_users: float
    p_seeds: float


def per_user(runs: Mapping[int, Run], metric: str, ranking: str) -> dict[int, dict[str, float]]:
    """Return the final metric of every user by seed."""
    out = {}
    for seed, run in runs.items():
        table = run.users
        own = table[(table["ranking"] == ranking) & (table["stage"] == run.summary["stage"])]
        out[seed] = dict(zip(own["user"], own[metric].astype(float), strict=True))
    return out


def against(rows: Mapping[str, ByUser], by_seed: Mapping[str, BySeed], best: str) -> dict[str, Against]:
    """Compare every row with the best one; rows without a finished run are left out."""
    found, values = dict[str, Against](), dict[str, float]()
    for name, own in rows.items():
        if name == best or not own:
            continue
        differences = _differences(own, rows[best])
        if not len(differences):
            continue
        generator = keyed.generator(0, purposes.BOOTSTRAP)  # the same users are drawn again for every row
        span = intervals([(np.arange(len(differences)), differences[:, None])], generator)
        values[name] = wilcoxon(differences)
        p_seeds = p_value(by_seed[name], by_seed[best])
        found[name] = Against(float(span.mean[0]), float(span.low[0]), float(span.high[0]), math.nan, p_seeds)
    corrected = holm(values)
    return {name: Against(one.mean, one.low, one.high, corrected[name], one.p_seeds) for name, one in found.items()}


def _differences(one: ByUser, other: ByUser) -> npt.NDArray[np.float64]:
    """Return for every user that both know the mean difference over the seeds that both have."""
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return np.empty(0)
    users = sorted(set.intersection(*(set(of[seed]) for seed in seeds for of in (one, other))))
    return np.array([[one[s][user] - other[s][user] for s in seeds] for user in users]).reshape(len(users), -1).mean(1)


def best_of(values: Mapping[str, Sequence[float]]) -> str | None:
    """Return the row with the highest mean; None where nothing is finished.

    >>> best_of({"a": [0.1, 0.3], "b": [0.25], "c": []})
    'b'
    """
    means = {name: sum(own) / len(own) for name, own in values.items() if len(own)}
    return max(means, key=lambda name: means[name], default=None)
