"""A task is what every user trains on and what is asked of a model, whichever protocol cut it out of the data."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.data.splits.split import Which


class Task(Protocol):
    """A task is a split or a block: what every user trains on and what is held out, row u is user u.

    `history`: earlier items as context. `pool`: existing items, ascending. `avoid`: further items that are no negatives
    (None: none).
    """

    @property
    def name(self) -> str: ...

    @property
    def train(self) -> Ragged: ...

    @property
    def history(self) -> Ragged: ...

    @property
    def pool(self) -> npt.NDArray[np.int32]: ...

    @property
    def avoid(self) -> Ragged | None: ...

    def users(self, which: Which) -> npt.NDArray[np.int64]:
        """Return the users with held-out items, ascending, int64 [n]."""
        ...

    def held(self, which: Which) -> npt.NDArray[np.int32]:
        """Return the held-out item of each of these users, the first of several, int32 [n]."""
        ...
