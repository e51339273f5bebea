"""A trained model is one value, which evaluation, export, audit and serving take, whoever trained it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from export.program import LocalProgram

Ints = npt.NDArray[np.int64]


class Rows(Protocol):
    """Users' items are held as one column: user u owns `values[offsets[u]:offsets[u + 1]]`."""

    @property
    def values(self) -> npt.NDArray[Any]:
        """Return item numbers, [all]."""
        ...

    @property
    def offsets(self) -> npt.NDArray[Any]:
        """Return where each user's items start, [users + 1]."""
        ...


class OwnRows(Protocol):
    """This is a `rows` tensor that differs from client to client, of which nobody holds the whole."""

    def rows(self, clients: Ints, items: Ints) -> Tensor:
        """Return the row of each (client, item) pair: float32 [n, width], on the host."""
        ...


@dataclass(frozen=True)
class HeldOut:
    """One item that each of these users did not train on: the run's validation items. int64 [n] both."""

    users: Ints
    items: Ints


@dataclass(frozen=True)
class Names:
    """These are ids of users and items, the items' titles, and `texts` that encoders read (None: the titles)."""

    users: Sequence[str]
    items: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str] | None = None

    @property
    def read(self) -> Sequence[str]:
        """Return what encoders read of each item."""
        return self.titles if self.texts is None else self.texts


@dataclass(frozen=True)
class TrainedModel:
    """A trained model is a local program with the tensors that training left, and what is known of its users and items.

    `shared` are whole tensors, `private` [U, ...] per user of `names.users`; clients without personal layers lack
    those tensors. `tables`: rows tensors that differ from client to client, by name. `own`: what users learned from
    last, `seen`: what is not recommended to them again. `history`: past positives that the program reads (None: it
    reads none); of programs that read sessions each user's newest one in order, and `times` its moments in unix
    seconds, rows alike. `pool`: items that may be recommended (None: all), where others are in the catalogue only
    because they are in users' histories. `numbers` key the users' draws in the run (None: 0, 1, ...).
    """

    program: LocalProgram
    shared: Mapping[str, Tensor]
    private: Mapping[str, Tensor]
    names: Names
    seen: Rows
    own: Rows | None = None
    history: Rows | None = None
    times: Rows | None = None
    pool: Sequence[int] | None = None
    held_out: HeldOut | None = None
    numbers: Sequence[int] | None = None
    tables: Mapping[str, OwnRows] = field(default_factory=dict)

    @property
    def offered(self) -> Ints:
        """Return the items that may be recommended, int64 [n]."""
        return np.arange(len(self.names.items)) if self.pool is None else np.asarray(self.pool, np.int64)
