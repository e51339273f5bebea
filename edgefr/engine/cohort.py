"""A cohort is who takes part in a round, and what is counted of it and kept of its uploads.

Owns: clients by the broadcast that they started from, counters, uploads by shard. Does not own: who is drawn
(`edgefr.participation`), what a round does with them (`federation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cloud.uploads import Uploads
from edgefr.engine.work import Clients, Updates
from export.program import Tensors


@dataclass(frozen=True)
class Group:
    """These are clients of a cohort that started in round `number` from the broadcast `shared`.

    `weight` in (0, 1] multiplies their updates, but not what the sum is divided by: an old update moves the model less
    (FedBuff, Nguyen et al. 2022, §3), and no update more than its clip lets it.
    """

    clients: Clients
    number: int
    shared: Tensors
    weight: float = 1.0


Cohort = Clients | Sequence[Group]
"""Who takes part in an aggregate: clients that all start from the present broadcast, or groups."""


@dataclass
class Counters:
    """The engine counts what it did, for the summary.

    `norms` are joint norms of what was released, before clipping; `closed` counts rounds of which nothing was learned
    for want of clients (`privacy.at_least`), `smallest` the clients of the smallest sum that was opened (0: none was).
    """

    clients: int = 0
    seconds: float = 0.0
    dropped: int = 0
    clipped: int = 0
    closed: int = 0
    smallest: int = 0
    norms: list[npt.NDArray[np.float64]] = field(default_factory=list)
    participation: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def uploads_of(updates: Updates, clients: int, weight: float) -> Uploads:
    """Return every update of a shard as a robust rule sees it, times its weight."""
    rows = {name: (u.rows, u.client, u.values * weight) for name, u in updates.rows.items()}
    return Uploads({name: value * weight for name, value in updates.dense.items()}, rows, clients, updates.left)
