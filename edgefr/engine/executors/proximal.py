"""This moves rows that are pulled in every step, read or not, without a table per client (`Phase.pulls`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cloud.host_transfer import surely
from export.program import Pull


@dataclass
class Pulled:
    """This is a pulled table of a shard: how far its rows have been moved, each when it is read.

    `way` [R, width]: from the broadcast's row to the one it is pulled to, by (client, item) pair. `steps` [R]: steps
    through which the pair's row has been moved. `ended` [C]: steps that each client took.
    """

    pull: Pull
    way: Tensor
    steps: Tensor
    ended: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    @classmethod
    def of(cls, pull: Pull, way: Tensor) -> Pulled:
        """Return the table before the first step."""
        return cls(pull, way, torch.zeros(len(way), dtype=torch.int64, device=way.device))

    def read(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Note that `rows` [n] are read at these steps; return the number of steps since their last read."""
        idle = steps - self.steps.index_select(0, rows)
        self.steps.index_copy_(0, rows, steps + 1)
        return idle

    def moved(self, change: Tensor, idle: Tensor, rows: Tensor | None = None) -> Tensor:
        """Move `rows` (None: all) in place through so many idle steps [n]: change c, way d, factor f: d + f (c - d)."""
        if surely(idle == 0):
            return change
        if idle.device.type == "cpu":  # of few numbers of steps, each once
            left = self.pull.left(torch.arange(int(idle.max()) + 1)).to(change).index_select(0, idle)
        else:
            left = self.pull.left(idle).to(change)
        way = self.way if rows is None else self.way.index_select(0, rows)
        return torch.lerp(way, change, left.unsqueeze(1), out=change)

    @property
    def left(self) -> Tensor:
        return self.pull.left(self.ended).to(self.way)
