"""This moves rows that are pulled in every step, read or not, without a table per client (`Phase.pulls`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

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

    def moved(self, change: Tensor, rows: Tensor | slice, steps: Tensor) -> Tensor:
        """Return what `rows` have changed after so many steps [n], of which those after their last did not read them.

        With c the change so far, d the way and f what is left of it: d + f (c - d).
        """
        idle = steps - self.steps[rows]
        self.steps[rows] = steps
        if not bool(idle.any()):
            return change
        left = self.pull.left(idle).to(change).unsqueeze(1)
        return torch.lerp(self.way[rows], change, left)

    def read(self, rows: Tensor) -> None:
        """Note that a step read these rows, so that its loss pulled them."""
        self.steps[rows] += 1

    @property
    def left(self) -> Tensor:
        """Return the share of their way that rows have left which no step of a client read, [C]."""
        return self.pull.left(self.ended).to(self.way)
