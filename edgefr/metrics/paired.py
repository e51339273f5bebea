"""Two ways are compared on the same users: difference, significance and effect size.

Owns: the comparison of one pair, and of a family of pairs whose p-values are corrected together. Does not own: whose
values these are, and the tests themselves (`bootstrap`, `significance`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgefr.config import random_streams as purposes
from edgefr.metrics.bootstrap import Floats, Part, intervals
from edgefr.metrics.significance import cohen_d, holm, rank_biserial, wilcoxon
from privacy import keyed

LEVEL = 0.05
"""Two rows are told apart by a corrected p below this."""


@dataclass(frozen=True)
class Apart:
    """This is a mean difference over users, its 95 % interval, p, and effect sizes.

    `p`: Wilcoxon's signed-rank test, `p_holm`: corrected for its family (NaN before). `d`: Cohen's d of paired
    differences; `r`: the matched-pairs rank-biserial correlation.
    """

    users: int
    mean: float
    low: float
    high: float
    p: float
    d: float
    r: float
    p_holm: float = math.nan

    @property
    def side(self) -> int:
        """Return 1 or -1 where both the corrected test and the mean's interval show a direction, else 0."""
        if not self.p_holm < LEVEL or not (self.low > 0 or self.high < 0):
            return 0
        return 1 if self.mean > 0 else -1


def apart(parts: Sequence[Part]) -> list[Apart]:
    """Compare by users' differences, a column each: [n, c] of the users of every part (blocks of a stream).

    The mean is over parts of means over users; tests take each user's mean over parts. Every call draws the same users.

    >>> (found,) = apart([(np.arange(12), np.full((12, 1), 0.25))])
    >>> found.users, found.mean, round(found.p, 4), found.r
    (12, 0.25, 0.0005, 1.0)
    """
    span = intervals(parts, keyed.generator(0, purposes.BOOTSTRAP))
    whole = _per_user(parts)
    return [
        Apart(len(column), mean, low, high, wilcoxon(column), cohen_d(column), rank_biserial(column))
        for column, mean, low, high in zip(
            whole.T, span.mean.tolist(), span.low.tolist(), span.high.tolist(), strict=True
        )
    ]


def family(found: Mapping[str, Apart]) -> dict[str, Apart]:
    """Return comparisons with their p-values corrected together (Holm, 1979)."""
    corrected = holm({name: one.p for name, one in found.items()})
    return {name: replace(one, p_holm=corrected[name]) for name, one in found.items()}


def _per_user(parts: Sequence[Part]) -> Floats:
    """Return each user's mean over the parts that have it, [users, c]."""
    if len(parts) == 1:
        return parts[0][1]
    users, place = np.unique(np.concatenate([own for own, _ in parts]), return_inverse=True)
    values = np.concatenate([of for _, of in parts])
    total = np.zeros((len(users), values.shape[1]))
    np.add.at(total, place, values)
    return total / np.bincount(place, minlength=len(users))[:, None]
