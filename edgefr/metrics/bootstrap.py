"""This module says how far a difference of means could be chance in who was asked: a paired bootstrap over users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Part = tuple[npt.NDArray[np.int64], Floats]
"""Users [n], each once, and what was measured of each: differences, float64 [n, c]."""

RESAMPLES = 1000
LEVEL = 0.95
LEAST = 10
"""Fewer users than these say nothing about others."""
_CHUNK = 1 << 22  # weights held at once


@dataclass(frozen=True)
class Intervals:
    """These are means [c] and the ends of their 95 % intervals [c]; both are NaN where too few users were asked."""

    mean: Floats
    low: Floats
    high: Floats


def intervals(parts: Sequence[Part], generator: np.random.Generator, resamples: int = RESAMPLES) -> Intervals:
    """Return the mean over parts of each part's mean over users, with its percentile interval (Efron, 1979).

    Users are resampled from all parts' users with all their values, so that users of several parts count once.

    >>> found = intervals([(np.arange(50), np.full((50, 1), 0.25))], np.random.default_rng(0))
    >>> found.low.tolist(), found.mean.tolist(), found.high.tolist()
    ([0.25], [0.25], [0.25])
    """
    everybody = np.unique(np.concatenate([users for users, _ in parts]))
    mean = np.mean([values.mean(axis=0) for _, values in parts], axis=0)
    if len(everybody) < LEAST:
        return Intervals(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    places = [np.searchsorted(everybody, users) for users, _ in parts]
    drawn = np.concatenate(
        [
            _means(_weights(len(everybody), min(size, resamples - at), generator), places, parts)
            for size in [max(1, _CHUNK // len(everybody))]
            for at in range(0, resamples, size)
        ]
    )
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Intervals(mean, low, high)


def _weights(users: int, resamples: int, generator: np.random.Generator) -> Floats:
    """Return how often each user was drawn in each resample, [resamples, users]."""
    drawn = generator.integers(0, users, (resamples, users)) + np.arange(resamples)[:, None] * users
    return np.bincount(drawn.ravel(), minlength=resamples * users).reshape(resamples, users).astype(np.float64)


def _means(weights: Floats, places: Sequence[npt.NDArray[np.int64]], parts: Sequence[Part]) -> Floats:
    """Return the statistic of each resample, [resamples, c]; a part without users keeps its mean."""
    out = []
    for place, (_, values) in zip(places, parts, strict=True):
        own = weights[:, place]
        total = own.sum(axis=1, keepdims=True)
        out.append(np.where(total > 0, own @ values / np.maximum(total, 1.0), values.mean(axis=0)))
    return np.mean(out, axis=0)
