"""Rows are compared over users and over seeds, each with one that was named before; p-values over users are Holm's.

A row that won on these very users would be too high among them by chance, and no correction of its comparisons with
others undoes that. Over users: a user's difference is its mean over the seeds in which both rows have the user, an
interval is the paired bootstrap's and p Wilcoxon's signed-rank test's. Over seeds: the paired t-test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edgefr import purposes
from edgefr.metrics.bootstrap import intervals
from edgefr.metrics.significance import holm, wilcoxon
from edgefr.reproductions.cells import BySeed, p_value
from edgefr.run import Run
from privacy import keyed

LEVEL = 0.05
"""Two rows are told apart by a corrected p below this."""

ByUser = Mapping[int, Mapping[str, float]]
"""A metric of every user, by seed and the user's name."""


@dataclass(frozen=True)
class Against:
    """This says how far a row is above another: the mean over so many users, its 95 % interval, and p by two tests.

    `p_users` is corrected for how many rows the other one was compared with.
    """

    users: int
    mean: float
    low: float
    high: float
    p_users: float
    p_seeds: float

    @property
    def side(self) -> int:
        """Return 1 for a row above the other, -1 for one below it, 0 where the two are not told apart.

        They are where both say so: the corrected test, and the interval of the mean, which has the direction.
        """
        if not self.p_users < LEVEL or self.low <= 0 <= self.high:
            return 0
        return 1 if self.mean > 0 else -1


def per_user(runs: Mapping[int, Run], metric: str, ranking: str) -> dict[int, dict[str, float]]:
    """Return the final metric of every user by seed."""
    out = {}
    for seed, run in runs.items():
        table = run.users
        own = table[(table["ranking"] == ranking) & (table["stage"] == run.summary["stage"])]
        out[seed] = dict(zip(own["user"], own[metric].astype(float), strict=True))
    return out


def against(
    rows: Mapping[str, ByUser], by_seed: Mapping[str, BySeed], base: str, names: Iterable[str]
) -> dict[str, Against]:
    """Compare each of these rows with `base`, which no result has chosen, by one family of tests.

    Rows that share no user of a seed with it are left out.
    """
    found, values = dict[str, Against](), dict[str, float]()
    for name in names:
        differences = _differences(rows[name], rows[base])
        if name == base or not len(differences):
            continue
        generator = keyed.generator(0, purposes.BOOTSTRAP)  # the same users are drawn again for every row
        span = intervals([(np.arange(len(differences)), differences[:, None])], generator)
        values[name] = wilcoxon(differences)
        mean, low, high = (float(value[0]) for value in (span.mean, span.low, span.high))
        found[name] = Against(len(differences), mean, low, high, math.nan, p_value(by_seed[name], by_seed[base]))
    corrected = holm(values)
    return {name: replace(one, p_users=corrected[name]) for name, one in found.items()}


def _differences(one: ByUser, other: ByUser) -> npt.NDArray[np.float64]:
    """Return a difference for every user: its mean over the seeds in which both rows have the user.

    A seed may rank a sample of users of its own, so users differ in how many seeds have them.
    """
    by_user: dict[str, list[float]] = {}
    for seed in sorted(one.keys() & other.keys()):
        for user in one[seed].keys() & other[seed].keys():
            by_user.setdefault(user, []).append(one[seed][user] - other[seed][user])
    return np.array([np.mean(by_user[user]) for user in sorted(by_user)], np.float64)


def best_of(values: Mapping[str, Sequence[float]]) -> str | None:
    """Return the row with the highest mean; None where nothing is finished.

    >>> best_of({"a": [0.1, 0.3], "b": [0.25], "c": []})
    'b'
    """
    means = {name: sum(own) / len(own) for name, own in values.items() if len(own)}
    return max(means, key=lambda name: means[name], default=None)
