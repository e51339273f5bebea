"""Sampled negatives: fixed per seed, uniform, without replacement, never an item the user has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.data.interactions import Dataset
from privacy import keyed
from privacy.errors import InputError

Items = npt.NDArray[np.int32]

_DRAWN_AT_ONCE = 1 << 24  # values of the largest table that is drawn with the split
_USERS_AT_ONCE = 1 << 12  # more at once do not fit the cache and take longer
_SCORES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Candidates:
    """The table [n, 1 + negatives] of held-out items and their negatives is drawn by rows on demand.

    Row r is for `users[r]`: `held[users[r]]`, then `negatives` items of `pool` [ascending] that are not in the user's
    `train` or tables of `others` (`held` among them). A row is the same whenever it is drawn. Index it by rows, as an
    array; `np.asarray` draws all of it.

    >>> table = Candidates(keyed.key(0, "doctest"), np.array([1]), np.array([-1, 4], np.int32),
    ...     Ragged.from_lists([[2], [0, 1]]), (np.array([-1, 4], np.int32),), np.arange(6, dtype=np.int32), 2)
    >>> table.shape, sorted(table[0].tolist()), (np.asarray(table) == table[:]).all().item()
    ((1, 3), [2, 4, 5], True)
    """

    key: int
    users: npt.NDArray[np.int64]
    held: Items
    train: Ragged
    others: tuple[Items, ...]
    pool: Items
    negatives: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, candidates of each)."""
        return len(self.users), 1 + self.negatives

    @property
    def dtype(self) -> np.dtype[np.int32]:
        return np.dtype(np.int32)

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, rows: int | slice | npt.NDArray[np.integer]) -> Items:
        asked = self.users[rows]
        users = np.atleast_1d(asked)
        out = np.empty((len(users), 1 + self.negatives), np.int32)
        out[:, 0] = self.held[users]
        for start in range(0, len(users), _USERS_AT_ONCE):
            part = slice(start, start + _USERS_AT_ONCE)
            drawn = sample_negatives(self.key, users[part], self._owned(users[part]), len(self.pool), self.negatives)
            out[part, 1:] = self.pool[drawn]
        return out if np.ndim(asked) else out[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)

    def _owned(self, users: npt.NDArray[np.int64]) -> Ragged:
        """Everything these users have, as ascending positions in the pool."""
        train, each = self.train.take(users), np.arange(len(users))
        row = np.concatenate([train.rows, *(each for _ in self.others)])
        item = np.concatenate([train.values, *(other[users] for other in self.others)])
        whole = int(self.pool[-1]) == len(self.pool) - 1  # then a position is the number itself
        bits = len(self.pool).bit_length()
        codes = row << bits | (item if whole else np.searchsorted(self.pool, item))
        codes.sort()
        return Ragged(codes & (1 << bits) - 1, train.offsets + len(self.others) * np.arange(len(users) + 1))


def drawn(table: Candidates) -> Items | Candidates:
    """Return the drawn table where it is small enough to keep, else the table itself."""
    rows, width = table.shape
    return table[:] if rows * width <= _DRAWN_AT_ONCE else table


def check_room(
    dataset: Dataset, users: npt.NDArray[np.int64], owned: npt.NDArray[np.int64], pool: int, negatives: int
) -> None:
    """Raise `InputError` for a user who leaves too few items; `owned[i]` of `pool` are not drawn for `users[i]`."""
    left = pool - owned
    worst = int(np.argmin(left))
    if left[worst] < negatives:
        ways = [f"lower it to {left[worst]}"] if left[worst] > 0 else []
        most = _room_for(dataset, users, pool - negatives, negatives)
        ways += [f"leave such users out (of a file by data_options.user_most={most})"] if most else []
        raise InputError(
            f"protocol.negatives is {negatives} but user '{dataset.users[users[worst]]}' of "
            f"'{dataset.name}' leaves only {left[worst]} of {pool} items to draw from; "
            f"{', or '.join(ways or ['use data with more items'])}"
        )


def _room_for(dataset: Dataset, users: npt.NDArray[np.int64], most: int, negatives: int) -> int | None:
    """Return the most interactions a user may have so that all who stay have room; None where nobody stays.

    Leaving users take their items along, so each look may lower the bound.
    """
    counts = np.diff(dataset.offsets)
    while most > 0 and (counts[users] <= most).any():
        room = len(np.unique(dataset.item[counts[dataset.user] <= most])) - negatives
        if counts[users[counts[users] <= most]].max() <= room:
            return most
        most = min(most - 1, room)
    return None


def sample_negatives(key: int, users: npt.ArrayLike, owned: Ragged, pool: int, count: int) -> npt.NDArray[np.int32]:
    """Draw `count` different positions in [0, pool) per user, [n, count], uniform over those the user does not own.

    `owned[i]` lists the positions of `users[i]`, ascending, distinct; at least `count` must be left. A user's draw
    depends on `key` and the user's number alone.
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
    draws = keyed.integers(keys[:, None], np.arange(count), pool)
    rows, attempt = np.arange(len(keys)), 0
    while len(rows):
        attempt += 1
        at_row, place = _unfit(draws[rows], owned.take(rows), pool)
        again = rows[at_row]
        draws[again, place] = keyed.integers(keys[again], attempt * count + place, pool)
        rows = np.unique(again)
    return draws


def _by_sorting(keys: npt.NDArray[np.uint64], owned: Ragged, pool: int, count: int) -> npt.NDArray[np.int64]:
    """Give every position its own 64 bits and take the smallest: for users who own most of a pool."""
    # Half of the bits' range is kept free for the owned, which must come last.
    bits = keyed.bits(keys[:, None], np.arange(pool)) >> np.uint64(1)
    bits[owned.rows, owned.values] = np.iinfo(np.uint64).max
    return np.argsort(bits, axis=1, kind="stable")[:, :count]


def _unfit(
    draws: npt.NDArray[np.int64], owned: Ragged, pool: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (row, place) of draws [n, count] that the row owns or that repeat one further left."""
    n, count = draws.shape
    bits = max(count - 1, 0).bit_length()
    codes = (draws << bits) + np.arange(count)
    if pool.bit_length() + bits <= 32:
        codes = codes.astype(np.uint32)  # sorted in half the time
    codes.sort(axis=1)
    value = codes >> bits
    bad = np.zeros(draws.shape, bool)
    bad[:, 1:] = value[:, 1:] == value[:, :-1]
    # There are fewer owned than draws, so the owned are looked up among the draws; repeats of a hit are bad already.
    drawn = (value + np.arange(n)[:, None] * pool).ravel()
    taken = owned.rows * pool + owned.values
    at = np.minimum(np.searchsorted(drawn, taken), drawn.size - 1)
    bad.ravel()[at[drawn[at] == taken]] = True
    row, column = np.nonzero(bad)
    return row, (codes[row, column] & ((1 << bits) - 1)).astype(np.int64)
