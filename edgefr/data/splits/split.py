"""A task is what every user trains on and what is asked of a model; a split is one that a protocol cuts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.data.splits.blocks import Block
from edgefr.data.splits.candidates import Candidates

Items = npt.NDArray[np.int32]
Which = Literal["valid", "test"]


@dataclass(frozen=True)
class Split:
    """A split says what every user trains on and what is held out. Row u of each table is user u of the data set.

    `name`: "main", "source", "target" or the protocol's. `train`, `history`: items in time order; `history` is context
    from the other domain (empty rows in "main" and "source"). `valid`, `test`: int32 [users], the held-out item or -1.
    `pool`: items that may be drawn and ranked, ascending. `valid_candidates`, `test_candidates`: int32 [n, 1 +
    negatives], the held-out item first, a row per user of `users(...)`; large tables draw rows on demand. `repeats`: a
    held-out item may be in train, so full ranking leaves nothing out. `avoid`: held-out items that training negatives
    avoid (None: training does not know them). `several`: validation and test items by user where several of a user's
    are held out, which are ranked in full alone; `valid` and `test` then have the first of each. `there`: the items
    that there are while it is trained, of which negatives are drawn (None: the pool).
    """

    name: str
    train: Ragged
    history: Ragged
    valid: Items
    test: Items
    pool: Items
    valid_candidates: Items | Candidates
    test_candidates: Items | Candidates
    repeats: bool = False
    avoid: Ragged | None = None
    several: tuple[Ragged, Ragged] | None = None
    there: Items | None = None

    @property
    def drawn(self) -> Items:
        """Return the items that negatives for training are drawn from, ascending."""
        return self.pool if self.there is None else self.there

    @cached_property
    def cold(self) -> bool:
        """Say whether nobody trains on any item that is ranked."""
        return not np.isin(self.pool, self.train.values).any()

    def users(self, which: Which) -> npt.NDArray[np.int64]:
        """Return the users with a held-out item, ascending, int64 [n]."""
        return np.flatnonzero(self._targets(which) >= 0)

    def held(self, which: Which) -> Items:
        """Return the held-out item of each of these users, int32 [n]."""
        return self._targets(which)[self.users(which)]

    def lists(self, which: Which) -> Ragged:
        """Return all held-out items of every user, a row per user of the data set."""
        return self._lists[0 if which == "valid" else 1]

    @cached_property
    def _lists(self) -> tuple[Ragged, Ragged]:
        if self.several is not None:
            return self.several
        n = len(self.train)
        valid = Ragged.from_sorted(self.users("valid"), self.held("valid"), n)
        return valid, Ragged.from_sorted(self.users("test"), self.held("test"), n)

    def _targets(self, which: Which) -> Items:
        return self.valid if which == "valid" else self.test


Task = Split | Block
"""What every user trains on and what is held out; row u is user u."""
