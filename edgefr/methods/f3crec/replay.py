"""The client side of F3CRec as functions on arrays: how far a client's taste has moved, and what it replays (§4.2).

Arrays have one row per client and one column per remembered item, best first; -1 marks an empty place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privacy import keyed

Ints = npt.NDArray[np.int64]
Lists = npt.NDArray[np.int32]


def ranks(scores: npt.NDArray[np.float32], places: Ints) -> Ints:
    """Ranks (1 is best) among all of some items: `scores` [C, n]; `places` [C, N] their columns, -1 for none (rank 0).

    Of equal scores the one in the earlier column is better, so every client's ranks differ.

    >>> ranks(np.array([[0.1, 0.9, 0.5]], np.float32), np.array([[1, 0, -1]])).tolist()
    [[1, 3, 0]]
    """
    from torch import from_numpy, searchsorted

    own = np.take_along_axis(scores, np.maximum(places, 0), axis=1)
    ascending = from_numpy(np.sort(scores, axis=1))  # plain values sort many times faster than orders
    above = scores.shape[1] - searchsorted(ascending, from_numpy(own), right=True).numpy()
    tied = scores.shape[1] - searchsorted(ascending, from_numpy(own)).numpy() - above > 1
    rank = 1 + above.astype(np.int64)
    for row, column in zip(*np.nonzero(tied & (places >= 0)), strict=True):
        rank[row, column] += np.count_nonzero(scores[row, : places[row, column]] == own[row, column])
    return np.where(places >= 0, rank, 0)


def preference_shift(now: Ints) -> Ints:
    """How far each client's remembered list has moved: sum over k of |rank of its k-th item - k|, int64 [C].

    `now` [C, N] are the items' ranks today; 0 marks an empty place.

    >>> preference_shift(np.array([[1, 2, 3], [3, 2, 1]])).tolist()
    [0, 4]
    """
    k = np.arange(1, now.shape[1] + 1)
    return np.where(now > 0, np.abs(now - k), 0).sum(axis=1)  # F3CRec Eq. 2


def memory_sizes(shift: Ints, sizes: Ints, scale: float) -> Ints:
    """How many remembered items each client replays: floor(exp(-scale * shift) * list length), int64 [C].

    >>> memory_sizes(np.array([0, 100]), np.array([30, 30]), 0.006).tolist()
    [30, 16]
    """
    rate = np.exp(-scale * shift)  # F3CRec Eq. 3
    return np.floor(rate * sizes).astype(np.int64)  # F3CRec Eq. 4


def without_replacement(
    keys: npt.NDArray[np.uint64], lists: Lists, sizes: Ints, weight: npt.NDArray[np.float64] | None = None
) -> npt.NDArray[np.bool_]:
    """Which remembered items are drawn: `sizes` [C] of each client's list without replacement, bool [C, N] (Eq. 4).

    `weight` [C, N] makes items likelier (each draw proportional to it); none: all alike.
    """
    draws = keyed.uniform(keys[:, None], np.arange(lists.shape[1]))
    order = np.log(np.maximum(draws, 1e-300))  # the largest u^(1/w) win (Efraimidis & Spirakis, 2006)
    if weight is not None:
        order = order / np.maximum(weight, 1e-12)
    order = np.where(lists >= 0, order, -np.inf)
    place = np.argsort(np.argsort(-order, axis=1, kind="stable"), axis=1, kind="stable")
    return (place < sizes[:, None]) & (lists >= 0)
