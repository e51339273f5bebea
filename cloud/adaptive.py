"""The server's own optimiser is Adam on the cohort's mean update (FedAdam, Reddi et al. 2021, Algorithm 2).

A mean over a cohort moves the row of an item that few clients have by next to nothing: the others say zero. Adam's step
does not depend on how large a mean is, only on how steady. It looks at the opened sum alone, so it costs no privacy.
Owns: moments and the size of a step. Does not own: the mean, what travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

BETA_1, BETA_2 = 0.9, 0.99


class ServerAdam:
    """Moments of the mean updates of some tensors, by name.

    `lr`: the longest a value moves in a round that all agree on. `floor`: size of a mean below which it is noise; added
    to the root of the second moment (tau of Reddi et al.).

    >>> server = ServerAdam(lr=0.1, floor=0.0)
    >>> [[round(x, 4) for x in server.step("w", torch.tensor([x, -2 * x])).tolist()] for x in (0.5, 0.5)]
    [[0.1, -0.1], [0.1, -0.1]]
    """

    def __init__(self, lr: float, floor: float):
        self.lr, self.floor = lr, floor
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.steps: dict[str, int] = {}

    def step(self, name: str, mean: Tensor) -> Tensor:
        """Return what tensor `name` moves by for a mean update, float64 of its shape."""
        first, second = self.moments.setdefault(name, (torch.zeros_like(mean), torch.zeros_like(mean)))
        first.lerp_(mean, 1 - BETA_1)
        second.mul_(BETA_2).addcmul_(mean, mean, value=1 - BETA_2)
        number = self.steps[name] = self.steps.get(name, 0) + 1
        spread = (second / (1 - BETA_2**number)).sqrt_().add_(self.floor)
        return (first * (self.lr / (1 - BETA_1**number))).div_(spread).nan_to_num_(0.0)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {
            name: {"first": first, "second": second, "steps": self.steps[name]}
            for name, (first, second) in self.moments.items()
        }

    def restore(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Go on from `state()` (arrays in place of tensors)."""
        for name, kept in state.items():
            first, second = (torch.from_numpy(np.array(kept[part])).to(device) for part in ("first", "second"))
            self.moments[name], self.steps[name] = (first, second), int(kept["steps"])
