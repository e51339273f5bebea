"""Rows of different lengths are held in one array: so are per-user data everywhere, on the server and on a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Ragged:
    """These are rows of different lengths in one array: row i is ``values[offsets[i]:offsets[i + 1]]``.

    `offsets` is int64 [n + 1], starts at 0 and never falls.

    >>> r = Ragged.from_lists([[4, 7], [], [1]])
    >>> r.counts.tolist(), r[0].tolist(), r.take([2, 0]).values.tolist()
    ([2, 0, 1], [4, 7], [1, 4, 7])
    """

    values: np.ndarray
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        """Return the values of one row, as a view. Negative rows count from the end; IndexError beyond the ends."""
        row = range(len(self))[row]
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Return the length of every row, int64 [n], read-only."""
        out = np.diff(self.offsets)
        out.flags.writeable = False
        return out

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Return the row of every value, int64 [len(values)]."""
        return np.repeat(np.arange(len(self)), self.counts)

    def take(self, ids: npt.ArrayLike) -> Ragged:
        """Return these rows, in this order; a row may be taken twice."""
        ids = np.asarray(ids, dtype=np.int64)
        starts = self.offsets[:-1][ids]
        offsets = _offsets(self.counts[ids])
        shift = np.repeat(starts - offsets[:-1], np.diff(offsets))
        return Ragged(self.values[np.arange(offsets[-1]) + shift], offsets)

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[int]], dtype: npt.DTypeLike = np.int32) -> Ragged:
        """Make one row per list. For small hand-made inputs: it walks over the lists."""
        rows = [np.asarray(row, dtype=dtype) for row in lists]
        values = np.concatenate([*rows, np.empty(0, dtype)])
        return cls(values, _offsets(np.array([len(r) for r in rows], dtype=np.int64)))

    @classmethod
    def from_sorted(cls, keys: npt.ArrayLike, values: np.ndarray, n: int) -> Ragged:
        """Make rows 0..n-1 from values whose row numbers `keys` already ascend.

        >>> Ragged.from_sorted([0, 0, 2], np.array([5, 6, 7]), 4).counts.tolist()
        [2, 0, 1, 0]
        """
        return cls(values, np.searchsorted(np.asarray(keys), np.arange(n + 1)).astype(np.int64))

    @classmethod
    def empty(cls, n: int, dtype: npt.DTypeLike = np.int32) -> Ragged:
        """Make n rows with nothing in them."""
        return cls(np.empty(0, dtype), np.zeros(n + 1, np.int64))


def _offsets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def joined(first: Ragged, second: Ragged) -> Ragged:
    """Return, row by row, the values of `first` followed by those of `second`."""
    values = np.empty(len(first.values) + len(second.values), np.result_type(first.values, second.values))
    # A value moves by what the other table has before it: of the rows above, and for `second` of its own row too.
    values[np.arange(len(first.values)) + np.repeat(second.offsets[:-1], first.counts)] = first.values
    values[np.arange(len(second.values)) + np.repeat(first.offsets[1:], second.counts)] = second.values
    return Ragged(values, first.offsets + second.offsets)


def without(first: Ragged, second: Ragged) -> Ragged:
    """Return, row by row, the values of `first` that are none of `second`."""
    width = 1 + max(int(first.values.max(initial=0)), int(second.values.max(initial=0)))
    keys, gone = (table.rows * width + table.values for table in (first, second))
    kept = ~np.isin(keys, gone)
    return Ragged.from_sorted(first.rows[kept], first.values[kept], len(first))
