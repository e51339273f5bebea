"""The server takes a step of Adam along the cohort's mean update (FedAdam, Reddi et al. 2021, Algorithm 2).

A mean over a cohort hardly moves the row of an item that few clients have: the others say zero. Adam's step depends on
how steady a mean is, not on how large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud.optimiser import Stepping
from cloud.rules.mean import ServerOptimiser

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.rules.mean import MeanSettings

BETA_1, BETA_2 = 0.9, 0.99


class Moments(Stepping):
    """These are moments of the mean updates of some tensors, by name.

    `lr`: the longest a value moves in a round that all agree on. `floor`: size of a mean below which it is noise; added
    to the root of the second moment (tau of Reddi et al.).

    >>> import torch
    >>> server = Moments(lr=0.1, floor=0.0)
    >>> [[round(x, 4) for x in server.step("w", torch.tensor([x, -2 * x])).tolist()] for x in (0.5, 0.5)]
    [[0.1, -0.1], [0.1, -0.1]]
    """

    def __init__(self, lr: float, floor: float):
        super().__init__()
        self.lr, self.floor = lr, floor

    def step(self, name: str, mean: Tensor) -> Tensor:
        if name not in self.kept:
            self.kept[name] = {"first": mean.new_zeros(mean.shape), "second": mean.new_zeros(mean.shape), "steps": 0}
        kept = self.kept[name]
        first, second, number = kept["first"], kept["second"], kept["steps"] + 1
        kept["steps"] = number
        first.lerp_(mean, 1 - BETA_1)
        second.mul_(BETA_2).addcmul_(mean, mean, value=1 - BETA_2)
        spread = (second / (1 - BETA_2**number)).sqrt_().add_(self.floor)
        step: Tensor = (first * (self.lr / (1 - BETA_1**number))).div_(spread).nan_to_num_(0.0)
        return step


class Adam(ServerOptimiser):
    """This optimiser moves each value by about `optimiser_lr` where cohorts agree, by less where they do not."""

    name = "adam"
    citation = "FedAdam: Reddi et al. 2021, Algorithm 2"
    keeps = True

    def begin(self, settings: MeanSettings) -> Moments:
        return Moments(settings.optimiser_lr, settings.floor)
