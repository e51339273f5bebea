"""A cohort is who takes part in a round, and what is counted of it and kept of its uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cloud.uploads import Uploads
from edgefr.engine.backends.backend import Backend
from edgefr.engine.work import Clients, Updates
from export.program import Tensors

MOST_NORMS = 1 << 18
"""Norms of releases that a run keeps: 2 MB, however long it goes on."""


@dataclass(frozen=True)
class Group:
    """These are clients of a cohort that started in round `number` from the broadcast `shared`.

    `weight` in (0, 1] multiplies their updates but not the divisor: an old update moves the model less (FedBuff, Nguyen
    et al. 2022, §3). `backend` does their work (None: the federation's).
    """

    clients: Clients
    number: int
    shared: Tensors
    weight: float = 1.0
    backend: Backend | None = None


Cohort = Clients | Sequence[Group]
"""Who takes part in an aggregate: clients that all start from the present broadcast, or groups."""


@dataclass
class Norms:
    """These are joint norms of releases before the clip: of all, or of every `stride`-th where they are many."""

    parts: list[npt.NDArray[np.float64]] = field(default_factory=list)
    count: int = 0
    stride: int = 1

    @property
    def values(self) -> npt.NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *self.parts])

    def add(self, norms: npt.NDArray[np.float64]) -> None:
        """Count some more, and keep what there is room for."""
        self.parts.append(norms[-self.count % self.stride :: self.stride])
        self.count += len(norms)
        while sum(map(len, self.parts)) > MOST_NORMS:
            self.parts, self.stride = [self.values[::2]], 2 * self.stride

    def state(self) -> dict[str, Any]:
        return {"values": self.values, "count": self.count, "stride": self.stride}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Norms:
        return cls([state["values"]], state["count"], state["stride"])


@dataclass
class Counters:
    """The engine counts for the summary.

    `norms`: joint norms before clipping; `closed`: rounds that learned nothing for want of clients
    (`privacy.at_least`); `smallest`: clients of the smallest sum that was opened (0: none).
    """

    clients: int = 0
    seconds: float = 0.0
    dropped: int = 0
    clipped: int = 0
    closed: int = 0
    smallest: int = 0
    norms: Norms = field(default_factory=Norms)
    participation: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def uploads_of(updates: Updates, clients: int, weight: float) -> Uploads:
    """Return every update of a shard as a robust rule sees it, times its weight."""
    rows = {name: (u.rows, u.client, u.values * weight) for name, u in updates.rows.items()}
    return Uploads({name: value * weight for name, value in updates.dense.items()}, rows, clients, updates.left)
