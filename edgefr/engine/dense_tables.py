"""This holds clients' whole tables for methods in which all rows of all clients differ after two rounds.

GPFedRec as released pulls all rows of a client towards a table that its server made for it alone, and its server has
these tables too. Training still touches only rows that are read (`proximal`). Owns: the layout. Does not own: who is
like whom (`cloud.rules.graph`), when (`federation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.uploads import Uploads
from edgefr.engine.work import Clients
from export.program import LocalProgram, Pull, Tensors
from privacy.errors import InputError

LARGEST = 2**32
"""Bytes of clients' whole tables, laid out, that a federation takes; it holds up to four such arrays."""


@dataclass(frozen=True)
class LaidRows:
    """These are whole tables of `clients` [C]: `values` [C, items, width]; all other clients have `table`."""

    table: Tensor
    clients: Tensor
    values: Tensor

    @classmethod
    def first(cls, table: Tensor) -> LaidRows:
        return cls(table.cpu(), torch.zeros(0, dtype=torch.int64), table.cpu().new_zeros(0, *table.shape))

    def rows(self, clients: Clients, items: npt.NDArray[np.integer[Any]]) -> Tensor:
        """Return the row of each (client, item) pair: [n, width], on the host."""
        index, slot = torch.from_numpy(np.array(items, np.int64)), self._slots(clients)
        there = slot >= 0
        if bool(there.all()):  # nobody has the common table
            return self.values.flatten(0, 1).index_select(0, slot * len(self.table) + index)
        out = self.table[index]
        out[there] = self.values.flatten(0, 1)[slot[there] * len(self.table) + index[there]]
        return out

    def whole(self, clients: Clients) -> Tensor:
        """Return the tables of these clients, laid out [n, items, width]: a copy."""
        slot = self._slots(clients)
        if not len(self.values):
            return self.table.repeat(len(clients), 1, 1)
        out = self.values[slot.clamp_min(0)]
        out[slot < 0] = self.table
        return out

    def joined(self, table: Tensor, clients: Clients, values: Tensor) -> LaidRows:
        """Return these tables with `values` in place of what `clients` had, and `table` for everybody else."""
        new = torch.from_numpy(clients)
        others = ~torch.isin(self.clients, new)
        kept = torch.cat([self.values[others], values]) if bool(others.any()) else values
        return LaidRows(table.cpu(), torch.cat([self.clients[others], new]), kept)

    def tensors(self) -> dict[str, Tensor]:
        """Return what is to be saved. Nobody writes into the tables laid out, so they are no copies."""
        return {"table": self.table.clone(), "clients": self.clients.clone(), "laid": self.values}

    def _slots(self, clients: Clients) -> Tensor:
        order = self.clients.argsort()
        ascending = self.clients[order].numpy()
        at = np.minimum(np.searchsorted(ascending, clients), max(len(ascending) - 1, 0))
        there = ascending[at] == clients if len(ascending) else np.zeros(len(clients), np.bool_)
        return torch.where(torch.from_numpy(there), order[torch.from_numpy(at)] if len(order) else torch.tensor(-1), -1)


def pulls_of(program: LocalProgram) -> dict[str, Pull]:
    """Return the tables whose every row the clients of a program move in a round, and where to."""
    phases = (phase for phase in program.phases if phase.when == "round" and phase.epochs)
    return {name: pull for phase in phases for name, pull in phase.pulls.items()}


def check_laid(program: LocalProgram, clients: int, clipped: bool, personal: bool) -> None:
    """Raise `InputError` where whole tables are needed and cannot be had."""
    for name in pulls_of(program):
        size = 4 * clients * program.specs[name].size
        if clipped or not personal or size > LARGEST:
            raise InputError(
                f"clients of {program.name} change every row of {name}, so their tables are laid out: that takes the "
                f"rule graph, no clip, and at most {LARGEST / 2**30:.0f} GiB (here {size / 2**30:.1f}); "
                "set model.pulls=batch"
            )


def laid_out(
    pulls: Mapping[str, Pull], uploads: Uploads, cohort: Clients, shared: Tensors, tables: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return the cohort's whole tables after a round, [C, items, width] by name; unread rows moved in closed form."""
    out = {}
    for name, pull in pulls.items():
        items, slots, values = (part.cpu() for part in uploads.rows[name])
        start = shared[name].cpu()
        left = uploads.left[name].to(start).view(-1, 1, 1)
        whole = torch.lerp(tables[pull.to].whole(cohort), start, left)
        whole[slots, items] = start[items] + values
        out[name] = whole
    return out
