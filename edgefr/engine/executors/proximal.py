"""This moves rows that are pulled in every step, read or not, without a table per client (`Phase.pulls`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cloud.host_transfer import surely
from export.program import Pull


@dataclass
class Pulled:
    """This is what a shard knows of a table that is pulled: how far its rows have been moved, each when it is read.

    `way` [R, width]: of each (client, item) pair, from the row of the broadcast to the one it is pulled to. `steps`
    [R]: steps of the client through which the pair's row has been moved. `ended` [C]: steps that each client took.
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
        """Note that clients read `rows` [n] after so many steps: its loss pulls them then.

        Return how many of those steps since their last did not read them.
        """
        idle = steps - self.steps.index_select(0, rows)
        self.steps.index_copy_(0, rows, steps + 1)
        return idle

    def moved(self, change: Tensor, idle: Tensor, rows: Tensor | None = None) -> Tensor:
        """Move in place what `rows` (None: all) have changed through so many steps [n] that did not read them.

        With c the change so far, d the way and f what is left of it: d + f (c - d).
        """
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
        """Return the share of their way that rows have left which no step of a client read, [C]."""
        return self.pull.left(self.ended).to(self.way)
