"""Metrics by group of users come with standard errors, and with whether groups differ by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """These are the values of users by group, arrays [groups].

    `users`, their `mean` (NaN: nobody) and its standard `error` (NaN below two users). `p_equal`: p of one-way analysis
    of variance (NaN where it is not defined).
    """

    users: Ints
    mean: Floats
    error: Floats
    p_equal: float

    def cell(self, group: int) -> dict[str, Any]:
        """Return a group's figures as JSON has them."""
        return {
            "users": int(self.users[group]),
            "mean": known(self.mean[group]),
            "standard_error": known(self.error[group]),
        }

    def spread(self, names: Sequence[str], mean: float) -> dict[str, Any]:
        """Return the worst and the best group by `names`, how far they are apart, and what they deviate by from `mean`.

        Groups of nobody do not count; the deviation is weighted by users.
        """
        there, users = np.flatnonzero(self.users), max(int(self.users.sum()), 1)
        variance = float((self.users[there] * (self.mean[there] - mean) ** 2).sum()) / users
        rest = {"sd": math.sqrt(variance), "p_equal": known(self.p_equal)}
        if not len(there):
            return {"worst": None, "best": None, "spread": None, **rest}
        ends = int(there[self.mean[there].argmin()]), int(there[self.mean[there].argmax()])
        worst, best = ({"class": names[end], **self.cell(end)} for end in ends)
        return {"worst": worst, "best": best, "spread": best["mean"] - worst["mean"], **rest}


def known(value: float) -> float | None:
    """Return a value for JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)


def by_group(values: Floats, group: npt.NDArray[np.integer], groups: int) -> Groups:
    """Summarise values [n] of users in `group` [n], numbered from 0 to `groups` - 1.

    >>> found = by_group(np.array([1.0, 3.0, 8.0]), np.array([0, 0, 2]), 3)
    >>> found.users.tolist(), found.mean.tolist(), found.error.tolist()
    ([2, 0, 1], [2.0, nan, 8.0], [1.0, nan, nan])
    """
    users = np.bincount(group, minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = _sums(values, group, groups) / users
        squares = _sums((values - mean[group]) ** 2, group, groups)
        error = np.where(users > 1, np.sqrt(squares / (users - 1) / users), np.nan)
    return Groups(users, mean, error, _p_equal(users, mean, squares))


def _sums(values: Floats, group: npt.NDArray[np.integer], groups: int) -> Floats:
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)


def _p_equal(users: Ints, mean: Floats, squares: Floats) -> float:
    there = users > 0
    n, k = int(users.sum()), int(there.sum())
    within = float(squares[there].sum())
    if k < 2 or n <= k:
        return math.nan
    overall = float((users[there] * mean[there]).sum()) / n
    between = float((users[there] * (mean[there] - overall) ** 2).sum())
    if within == 0:
        return math.nan if between == 0 else 0.0
    from scipy.special import fdtrc  # comes with the `cloud` extra only; scipy.stats takes a second to import

    return float(fdtrc(k - 1, n - k, between / (k - 1) / (within / (n - k))))


def rank_correlation(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Spearman's correlation of two columns [n], ties sharing their mean rank; NaN where one is constant.

    >>> rank_correlation([1, 2, 2, 9], [0.1, 0.4, 0.4, 0.5])
    1.0
    """
    one, two = (ranks(np.asarray(column, dtype=np.float64)) for column in (first, second))
    one, two = one - one.mean(), two - two.mean()
    scale = math.sqrt(float(one @ one) * float(two @ two))
    return float(one @ two) / scale if scale else math.nan


def ranks(values: Floats) -> Floats:
    """Return the rank of every value [n] from 1, the smallest; ties share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]
