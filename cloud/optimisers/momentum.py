"""The server adds up mean updates, older ones ever less (FedAvgM, Hsu et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud.optimiser import Stepping
from cloud.rules.mean import ServerOptimiser

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.rules.mean import MeanSettings


class RunningSum(Stepping):
    """These are sums of mean updates by tensor, each round's old sum times `momentum`; a step is `lr` times the sum.

    >>> import torch
    >>> server = RunningSum(lr=0.1, momentum=0.5)
    >>> [server.step("w", torch.tensor([x])).item() for x in (1.0, 1.0, 0.0)]
    [0.1, 0.15000000000000002, 0.07500000000000001]
    """

    def __init__(self, lr: float, momentum: float):
        super().__init__()
        self.lr, self.momentum = lr, momentum

    def step(self, name: str, mean: Tensor) -> Tensor:
        before = self.kept.get(name)
        total = mean.double() if before is None else before["sum"] * self.momentum + mean
        self.kept[name] = {"sum": total}
        return total * self.lr


class Momentum(ServerOptimiser):
    """This optimiser goes on in the direction of earlier rounds, which evens out whom a round happened to ask."""

    name = "momentum"
    citation = "FedAvgM: Hsu et al. 2019"
    keeps = True

    def begin(self, settings: MeanSettings) -> RunningSum:
        return RunningSum(settings.optimiser_lr, settings.momentum)
