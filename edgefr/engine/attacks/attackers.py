"""Attackers are ordinary clients of the fleet who upload what an attack makes in place of what they learned.

They take part, learn for themselves and keep their private tensors as everybody does. They upload the change of the
target's row that they want, times the clients per attacker, shortened to the length of their honest upload. It goes the
way of all uploads: clip, grid, weight, sum, noise, rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edge.ragged import Ragged
from edgefr.engine.aggregate import Leaving, ReleaseTerms, ShardAggregate
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.cohort import Cohort, Group
from edgefr.engine.executors import inline
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates
from export.program import Tensors


@dataclass(frozen=True)
class Known:
    """This is what attackers know, who share all of it.

    `table` [items, d]: the broadcast; `moved` [items]: how far each row went from broadcast to broadcast, summed;
    `target`: the item they want recommended; `public`: interactions that anybody can read, items by user.
    """

    table: Tensor
    moved: Tensor
    target: int
    public: Ragged


@dataclass
class Attackers:
    """These `clients` are hostile; `table` names the item table, and the rest is as in `Known`.

    `times`: clients per attacker, by which what they want is multiplied, since a mean divides it. `strength`: length of
    the row that they want, in lengths of the longest other row. `beyond`: no length binds them, and no clip.
    `seen`: the newest broadcast of the table (None: there was none).
    """

    clients: Clients
    direction: Callable[[Known], Tensor]
    table: str
    target: int
    public: Ragged
    times: float = 1.0
    strength: float = 2.0
    beyond: bool = False
    seen: Tensor | None = None
    moved: Tensor | None = None

    def apart(self, cohort: Cohort, number: int, shared: Tensors) -> list[Group]:
        """Look at the broadcast of round `number`; return its cohort as groups, of which attackers are their own."""
        table = shared[self.table]
        far = torch.linalg.vector_norm(table - (table if self.seen is None else self.seen.to(table)), dim=1)
        self.moved, self.seen = far if self.moved is None else self.moved.to(far) + far, table
        groups = [Group(cohort, number, shared)] if isinstance(cohort, np.ndarray) else cohort
        out = []
        for group in groups:
            hostile = np.isin(group.clients, self.clients)
            parts = ((~hostile, None), (hostile, HostileBackend(self)))
            out += [replace(group, clients=group.clients[own], backend=by) for own, by in parts if own.any()]
        return out

    def run(self, work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
        """Let a shard of attackers learn as an executor does, and put the attack in place of their update."""
        honest, table = inline.run(work, shared, private, clients), shared[self.table]
        wanted = self.wanted(table)
        share = torch.ones(len(clients), dtype=wanted.dtype, device=wanted.device)
        if not self.beyond:
            tiny = torch.finfo(wanted.dtype).tiny
            share = (honest.norms(len(clients), 2) / wanted.norm().clamp_min(tiny)).clamp_max(1.0)
        slots = torch.arange(len(clients), device=table.device)
        changes = RowUpdates(torch.full_like(slots, self.target), slots, torch.outer(share, wanted).to(table))
        return replace(honest, rows={self.table: changes})

    def wanted(self, table: Tensor) -> Tensor:
        """Return what each attacker would upload of the target's row, if no length bound it: [d], float64."""
        aim = self.direction(Known(table, self._moved(table), self.target, self.public)).double()
        if not bool(aim.any()):
            return torch.zeros_like(aim)
        lengths = torch.linalg.vector_norm(table, dim=1, dtype=torch.float64)
        lengths[self.target] = 0.0
        row = self.strength * lengths.amax() * aim / aim.norm()
        return (row - table[self.target]) * self.times

    def _moved(self, table: Tensor) -> Tensor:
        return table.new_zeros(len(table)) if self.moved is None else self.moved

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"seen": self.seen, "moved": self.moved}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` (arrays in place of tensors)."""
        self.seen, self.moved = (None if state[n] is None else torch.as_tensor(state[n]) for n in ("seen", "moved"))


class HostileBackend(InProcess):
    """This backend runs shards of attackers, always in this process, so no worker changes what they upload."""

    def __init__(self, attackers: Attackers):
        super().__init__(attackers.run)
        self.beyond = attackers.beyond

    def releases(
        self, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[ShardAggregate | Leaving]:
        terms = replace(terms, clip=None) if self.beyond else terms
        return super().releases(work, terms, shared, private, shards)
