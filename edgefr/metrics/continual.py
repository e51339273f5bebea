"""These metrics say what a model learns and what it keeps over blocks.

a(t, s) is its performance after block t on block s's test. `performance` is lower-triangular: row t holds a(t, 0) ..
a(t, t), and values above the diagonal are ignored. Cells without users are NaN and left out of means; an empty mean is
NaN. `first` is the first block that counts: 0 all, 1 without the base block, as F3CRec's averages over D1 .. D3 (Table
2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Performance = Sequence[Sequence[float]] | npt.NDArray[np.floating]

Masks = Literal["as released", "history"]
MASKS: tuple[Masks, ...] = ("as released", "history")
"""What is not ranked: the user's training (and, in a test, validation) items of the block just learned; or everything
the user has had so far. Never the items that are asked for."""


def learning_average(performance: Performance, first: int = 0) -> float:
    """Return LA: the mean of a(i, i), how well each block is learned when it comes.

    >>> learning_average([[0.3], [0.1, 0.2], [0.1, 0.1, 0.4]], first=1)
    0.30000000000000004
    """
    table = _square(performance, first)
    return _mean(np.diagonal(table)[first:])


def retained_average(performance: Performance, first: int = 0) -> float:
    """Return RA: the mean over blocks s of a(T, s), what the last model still knows of every block.

    >>> retained_average([[0.3], [0.1, 0.2], [0.1, 0.1, 0.4]], first=1)
    0.25
    """
    return _mean(_square(performance, first)[-1, first:])


def harmonic_mean(learned: float, retained: float) -> float:
    """Return the harmonic mean of LA and RA: high only where both are. It is 0 where both are 0; NaN where either is.

    >>> harmonic_mean(0.3, 0.15)
    0.2
    """
    total = learned + retained
    return 2 * learned * retained / total if total != 0 else 0.0


def forgetting(performance: Performance, first: int = 0) -> float:
    """Return the mean over blocks s < T of the best a(t, s), s <= t < T, less a(T, s).

    Below 0 where later blocks helped (Chaudhry et al. 2018). Blocks without numbers on both sides do not count.

    >>> forgetting([[0.5], [0.25, 0.2], [0.375, 0.1, 0.4]])
    0.1125
    """
    table = _square(performance, first)
    best = np.fmax.reduce(table[:-1], axis=0, initial=np.nan)
    return _mean((best - table[-1])[first:-1])


def degradation(before: float, after: float) -> float:
    """Return (a(0,0) - a(1,0)) / a(0,0), the share of its performance that a model lost (F3CRec §5.3.2, Table 4).

    NaN where a(0,0) is 0, and where either is NaN.

    >>> degradation(0.25, 0.0625)
    0.75
    """
    return (before - after) / before if before != 0 else math.nan


def _square(performance: Performance, first: int) -> npt.NDArray[np.float64]:
    """Return a(t, s) as [blocks, blocks], NaN above the diagonal; `ValueError` for short rows or if no block counts."""
    blocks = len(performance)
    if not 0 <= first < blocks:
        raise ValueError(f"of {blocks} blocks none counts from block {first} on")
    out = np.full((blocks, blocks), np.nan)
    for t, row in enumerate(performance):
        if len(row) <= t:
            raise ValueError(f"row {t} has {len(row)} values; it must hold a({t}, 0) to a({t}, {t})")
        out[t, : t + 1] = row[: t + 1]
    return out


def _mean(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
