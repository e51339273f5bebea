"""Sampled negatives: fixed per seed, uniform, without replacement, never an item the user has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Ragged
from privacy import keyed

_USERS_AT_ONCE = 1 << 15
_SCORES_AT_ONCE = 1 << 22


def sample_negatives(key: int, users: npt.ArrayLike, owned: Ragged, pool: int, count: int) -> npt.NDArray[np.int32]:
    """`count` different positions in [0, pool) per user, uniform over those that the user does not own: [n,
    count].

    `owned[i]` lists the positions that `users[i]` owns, ascending, without repeats; at least `count` must be
    left. A user's draw depends on `key` and the user's number alone, not on who else is drawn.

    >>> own = Ragged.from_lists([[0, 1], [2]])
    >>> draws = sample_negatives(keyed.key(0, "doctest"), [7, 8], own, pool=4, count=2)
    >>> sorted(draws[0].tolist()), 2 in draws[1]
    ([2, 3], False)
    """
    keys = keyed.fold(key, np.asarray(users, dtype=np.int64))
    out = np.empty((len(keys), count), np.int32)
    # Drawing and drawing again needs few tries while at least half of the pool stays free to the end.
    free = pool - owned.counts - count
    roomy = 2 * free >= pool
    for ids in _parts(np.flatnonzero(roomy), _USERS_AT_ONCE):
        out[ids] = _by_rejection(keys[ids], owned.take(ids), pool, count)
    for ids in _parts(np.flatnonzero(~roomy), max(1, _SCORES_AT_ONCE // pool)):
        out[ids] = _by_sorting(keys[ids], owned.take(ids), pool, count)
    return out


def _parts(ids: npt.NDArray[np.int64], size: int) -> list[npt.NDArray[np.int64]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def _by_rejection(keys: npt.NDArray[np.uint64], owned: Ragged, pool: int, count: int) -> npt.NDArray[np.int64]:
    """Draw all places, then redraw those that are owned or repeat a place further left, until none is."""
    taken = owned.rows * pool + owned.values  # ascending, so membership is one binary search
    draws = keyed.integers(keys[:, None], np.arange(count), pool)
    rows, attempt = np.arange(len(keys)), 0
    while len(rows):
        now = draws[rows]
        bad = _contains(taken, rows[:, None] * pool + now) | _repeats(now)
        attempt += 1
        at_row, place = np.nonzero(bad)
        draws[rows[at_row], place] = keyed.integers(keys[rows[at_row]], attempt * count + place, pool)
        rows = rows[bad.any(axis=1)]
    return draws


def _by_sorting(keys: npt.NDArray[np.uint64], owned: Ragged, pool: int, count: int) -> npt.NDArray[np.int64]:
    """Give every position its own 64 bits and take the smallest: for users who own most of a pool."""
    # Half of the bits' range is kept free for the owned, which must come last.
    bits = keyed.bits(keys[:, None], np.arange(pool)) >> np.uint64(1)
    bits[owned.rows, owned.values] = np.iinfo(np.uint64).max
    return np.argsort(bits, axis=1, kind="stable")[:, :count]


def _contains(ascending: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    if not len(ascending):
        return np.zeros(wanted.shape, bool)
    at = np.searchsorted(ascending, wanted)
    return ascending[np.minimum(at, len(ascending) - 1)] == wanted


def _repeats(draws: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """True where a value already stands further left in its row."""
    order = np.argsort(draws, axis=1, kind="stable")
    ordered = np.take_along_axis(draws, order, axis=1)
    again = np.zeros(draws.shape, bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return again
