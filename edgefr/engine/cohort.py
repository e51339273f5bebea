"""A cohort is who takes part in a round, and what is counted of it and kept of its uploads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cloud.uploads import Uploads
from edgefr.engine.aggregate import ShardAggregate
from edgefr.engine.backends.backend import Backend
from edgefr.engine.noise import NoiseSource
from edgefr.engine.work import Clients, Updates
from export.program import Tensors
from privacy.grid import to_grid
from privacy.mechanism import Noise
from privacy.plan import PrivacyPlan
from privacy.report import ClipFacts
from privacy.settings import TOLD

Floats = npt.NDArray[np.float64]

MOST_NORMS = 1 << 18
"""Norms of releases that a run keeps: 2 MB, however long it goes on."""


PACE = 0.5
"""How fast a clip follows updates: by at most exp(`PACE`) in a round."""


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

    parts: list[Floats] = field(default_factory=list)
    count: int = 0
    stride: int = 1

    @property
    def values(self) -> Floats:
        return np.concatenate([np.zeros(0), *self.parts])

    def add(self, norms: Floats) -> None:
        """Count some more, and keep what there is room for."""
        self.parts.append(norms[-self.count % self.stride :: self.stride])
        self.count += len(norms)
        while self.count > MOST_NORMS * self.stride:  # of so many every `stride`-th is kept
            self.parts, self.stride = [self.values[::2]], 2 * self.stride

    def state(self) -> dict[str, Any]:
        return {"values": self.values, "count": self.count, "stride": self.stride}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Norms:
        return cls([state["values"]], state["count"], state["stride"])


@dataclass
class ClipTold:
    """This is what the clip did to updates, as the noised sums of rounds tell it.

    A client's release has two values more, each at most `TOLD` clips: one if the clip shortened its update, and one in
    proportion to the part of the length that was kept. `told`: float64 [2], their sums over all rounds told, over
    `TOLD` clips, of `uploads` clients. `open`: of the round that is open, without noise. `scale` in (0, 1]: what the
    clip of the next round is of the largest.
    """

    told: Floats = field(default_factory=lambda: np.zeros(2))
    uploads: int = 0
    rounds: int = 0
    open: Floats = field(default_factory=lambda: np.zeros(2))
    seen: int = 0
    scale: float = 1.0

    def begin(self) -> None:
        """Forget what an earlier round left open."""
        self.open, self.seen = np.zeros(2), 0

    def see(self, norms: Floats, dropped: int, noise: Noise | None, clip: float) -> None:
        """Take the norms of some updates of the round before the clip; dropped ones count too, and as nothing.

        So what is told does not depend on who failed.
        """
        now = clip * self.scale
        values = TOLD * clip * np.stack([norms > now, now / np.maximum(norms, now)])
        self.open += (values if noise is None or noise.step is None else to_grid(values, noise.step)).sum(axis=1)
        self.seen += len(norms) + dropped

    def tell(self, clip: float, noise: Iterable[Floats], quantile: float | None) -> None:
        """End a round whose sum was opened; `noise`: of float64 [2]. A server that sees no norms is told nothing.

        The clip of the next round is longer where fewer updates than a `quantile` were whole, and shorter where more
        were, and never longer than the largest: Andrew et al. 2021, Algorithm 1, geometric updates.
        """
        if self.seen:
            found = (self.open + next(iter(noise), np.zeros(2))) / (TOLD * clip)
            self.told, self.uploads, self.rounds = self.told + found, self.uploads + self.seen, self.rounds + 1
            if quantile is not None:
                whole = 1.0 - min(max(found[0] / self.seen, 0.0), 1.0)
                self.scale = min(1.0, self.scale * math.exp(-PACE * (whole - quantile)))
        self.begin()

    def facts(self, noise: Noise | None, clip: float) -> ClipFacts | None:
        """Return what all rounds told."""
        if not self.uploads:
            return None
        std = 0.0 if noise is None else noise.std / (TOLD * clip) * math.sqrt(self.rounds) / self.uploads
        shortened, kept = np.clip(self.told / self.uploads, 0.0, 1.0)
        return ClipFacts(float(shortened), float(kept), std, self.scale)

    def state(self) -> dict[str, Any]:
        return {"told": self.told, "uploads": self.uploads, "rounds": self.rounds, "scale": self.scale}

    @classmethod
    def restored(cls, state: dict[str, Any] | None) -> ClipTold:
        return cls() if state is None else cls(**state)


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
    clip_told: ClipTold = field(default_factory=ClipTold)
    participation: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, part: ShardAggregate, plan: PrivacyPlan) -> None:
        """Count a shard's releases."""
        self.dropped += part.dropped
        self.clipped += part.clipped
        self.norms.add(part.norms)
        if plan.told is not None:
            self.clip_told.see(part.norms, part.dropped, *plan.told)

    def open(self, clients: int, plan: PrivacyPlan, noise: NoiseSource, number: int) -> None:
        """Count a round whose sum of so many clients was opened."""
        if clients:
            self.smallest = min(self.smallest or clients, clients)
        if plan.told is not None:
            law, clip = plan.told
            drawn = () if law is None else noise.sums(law, "the clip", number, (2,), [1])
            self.clip_told.tell(clip, drawn, plan.clip_quantile)

    def state(self) -> dict[str, Any]:
        return {**vars(self), "norms": self.norms.state(), "clip_told": self.clip_told.state()}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Counters:
        told = ClipTold.restored(state.get("clip_told"))  # which checkpoints before it lack
        return cls(**{**state, "norms": Norms.restored(state["norms"]), "clip_told": told})


def uploads_of(updates: Updates, clients: int, weight: float) -> Uploads:
    """Return every update of a shard as a robust rule sees it, times its weight."""
    rows = {name: (u.rows, u.client, u.values * weight) for name, u in updates.rows.items()}
    return Uploads({name: value * weight for name, value in updates.dense.items()}, rows, clients, updates.left)
