"""Rows are compared over users and over seeds, each with one that was named before; p-values over users are Holm's.

A row that won on these very users would be too high among them by chance, and no correction of its comparisons with
others undoes that. Over users: a user's difference is its mean over the seeds in which both rows have the user, an
interval is the paired bootstrap's and p Wilcoxon's signed-rank test's. Over seeds: the paired t-test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.metrics.paired import Apart, apart, family
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.cells import BySeed, p_value

ByUser = Mapping[int, Mapping[str, float]]
"""A metric of every user, by seed and the user's name."""


@dataclass(frozen=True)
class Against:
    """This says how far a row is above another over users, and p over seeds."""

    users: Apart
    p_seeds: float

    @property
    def side(self) -> int:
        """Return 1 for a row above the other, -1 for one below it, 0 where the two are not told apart over users."""
        return self.users.side


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
    found = dict[str, Apart]()
    for name in names:
        differences = _differences(rows[name], rows[base])
        if name != base and len(differences):
            (found[name],) = apart([(np.arange(len(differences)), differences[:, None])])
    return {name: Against(one, p_value(by_seed[name], by_seed[base])) for name, one in family(found).items()}


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
