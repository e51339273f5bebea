"""This module says whether one method is better than another by more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edgefr.metrics.groups import ranks


def paired_t(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the two-sided p of the paired t-test on values per seed or block: F3CRec's test (§5.2, Table 2).

    Pairs with a NaN are left out. NaN with fewer than two pairs; for equal differences 1.0 if they are 0, else 0.0.
    Blocks of one run are not independent. Raises `ValueError` for different lengths.

    >>> round(paired_t([0.3, 0.5, 0.4], [0.2, 0.3, 0.35]), 4)
    0.1181
    """
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError(f"pairs need two rows of one length; got shapes {one.shape} and {two.shape}")
    known = ~np.isnan(one - two)
    one, two = one[known], two[known]
    if len(one) < 2:
        return math.nan
    difference = one - two
    if np.allclose(difference, difference[0], rtol=1e-9, atol=1e-12):  # but for rounding
        return 1.0 if abs(difference[0]) < 1e-12 else 0.0
    from scipy.stats import ttest_rel  # comes with the `cloud` extra only

    return float(ttest_rel(one, two).pvalue)


def wilcoxon(differences: npt.ArrayLike) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test on paired differences, as of users (Wilcoxon, 1945).

    Differences of 0 are left out. 1.0 where there are no others; NaN with a NaN.

    >>> round(wilcoxon([0.1, 0.2, 0.3, 0.4, 0.5, 0.0]), 4)
    0.0625
    """
    values = np.asarray(differences, np.float64)
    if np.isnan(values).any():
        return math.nan
    values = values[values != 0]
    if not len(values):
        return 1.0
    from scipy.stats import wilcoxon as signed_rank

    return float(signed_rank(values).pvalue)


def cohen_d(differences: npt.ArrayLike) -> float:
    """Return Cohen's d of paired differences: their mean over their standard deviation (n - 1).

    0 where nothing differs; NaN with fewer than two, and for equal differences.

    >>> round(cohen_d([0.1, 0.2, 0.3]), 9), cohen_d([0.0, 0.0])
    (2.0, 0.0)
    """
    values = np.asarray(differences, np.float64)
    if len(values) < 2:
        return math.nan
    spread, mean = float(values.std(ddof=1)), float(values.mean())
    if spread <= 1e-12 * abs(mean):  # but for rounding
        return 0.0 if mean == 0 else math.nan
    return mean / spread


def rank_biserial(differences: npt.ArrayLike) -> float:
    """Return the matched-pairs rank-biserial correlation, in [-1, 1], which goes with Wilcoxon's test (Kerby, 2014).

    It is the rank share of differences above 0 less that of those below; 0.0 without differences; NaN with a NaN.

    >>> rank_biserial([0.1, 0.2, 0.3, -0.4]), rank_biserial([0.0])
    (0.2, 0.0)
    """
    values = np.asarray(differences, np.float64)
    if np.isnan(values).any():
        return math.nan
    values = values[values != 0]
    if not len(values):
        return 0.0
    rank = ranks(np.abs(values))
    return float((rank * np.sign(values)).sum() / rank.sum())


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values corrected for how many tests there are, by their names (Holm, 1979). NaN stay and do not count.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    order = sorted((name for name, p in values.items() if not math.isnan(p)), key=lambda name: values[name])
    out, highest = {name: math.nan for name in values}, 0.0
    for at, name in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - at) * values[name]))
        out[name] = highest
    return out
