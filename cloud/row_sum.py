"""The sum of a table's updates is held over the rows that any of them touched, so it costs what was touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class RowSum:
    """This is a float64 sum over the touched rows of a table of `shape`, on the host.

    A device with its own memory would have to tell the host how many rows are new, and holds a whole table instead.

    >>> total = RowSum((5, 1))
    >>> total.add(torch.tensor([3, 0, 3]), torch.tensor([[1.0], [2.0], [4.0]]))
    >>> total.rows.tolist(), total.values.flatten().tolist()
    ([0, 3], [2.0, 5.0])
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._place = np.zeros(shape[0], np.int32)  # one more than a row's place, 0: not touched
        self._rows = np.empty(0, np.int64)
        self._values = torch.empty(0, *self.shape[1:], dtype=torch.float64)
        self._count = 0

    @property
    def rows(self) -> Tensor:
        """Return the touched rows in the order in which they came, int64 [k]."""
        return torch.from_numpy(self._rows[: self._count])

    @property
    def values(self) -> Tensor:
        """Return the sums of these rows, float64 [k, *shape[1:]]."""
        return self._values[: self._count]

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Add `values` [k, ...] to `rows` [k]; repeated rows one after the other."""
        numbers = rows.numpy()
        new = numbers[self._place[numbers] == 0]
        if len(new):
            self._grow(new if (np.diff(new) > 0).all() else np.unique(new))
        places = torch.from_numpy(self._place[numbers].astype(np.int64) - 1)
        self._values.index_add_(0, places, values.to(self._values))

    def whole(self) -> Tensor:
        """Return the sum as a table, float64 of `shape`; rows that nobody touched are zeros."""
        out = torch.zeros(self.shape, dtype=torch.float64)
        out[self.rows] = self.values
        return out

    def clear(self) -> None:
        """Start again from nothing; the room stays."""
        self._place[self._rows[: self._count]] = 0
        self._count = 0

    def _grow(self, new: np.ndarray) -> None:
        first, self._count = self._count, self._count + len(new)
        if self._count > len(self._rows):
            room = min(max(self._count, 2 * len(self._rows)), self.shape[0])
            self._rows = np.concatenate([self._rows[:first], np.empty(room - first, np.int64)])
            values = torch.empty(room, *self.shape[1:], dtype=torch.float64)
            values[:first] = self._values[:first]
            self._values = values
        self._rows[first : self._count] = new
        self._values[first : self._count] = 0.0
        self._place[new] = np.arange(first + 1, self._count + 1)
