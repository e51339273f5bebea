"""A server optimiser takes the cohort's mean update for a negative gradient (FedOpt, Reddi et al. 2021, Algorithm 1).

Any of them looks at the opened sum alone, so it costs no privacy. A plug-in registers its own in `OPTIMISERS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privacy.table import Table

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BETA_1, BETA_2 = 0.9, 0.99


class Stepping(ABC):
    """This is an optimiser while a run goes on. `kept`: what it keeps of each tensor, by names: tensors and counts."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    @abstractmethod
    def step(self, name: str, mean: Tensor) -> Tensor:
        """Return what tensor `name` moves by for a mean update, float64 of its shape."""

    def state(self) -> dict[str, dict[str, Any]]:
        """Return what a checkpoint needs."""
        return {name: dict(parts) for name, parts in self.kept.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]], device: torch.device) -> None:
        """Go on from `state()` (arrays in place of tensors)."""
        import torch

        for name, parts in state.items():
            self.kept[name] = {
                part: torch.from_numpy(np.array(value)).to(device) if isinstance(value, np.ndarray) else int(value)
                for part, value in parts.items()
            }


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


class Moments(Stepping):
    """These are Adam's moments of mean updates by tensor (FedAdam): a step depends on how steady a mean is.

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


@dataclass(frozen=True)
class ServerOptimiser:
    """An optimiser is everything that its name means. `citation`: where it is from.

    `begin(settings)`: its state before the first round, by `cloud.rules.mean.MeanSettings`; None: the mean is stepped
    along as it is. `keeps`: it keeps something of each tensor, so that it has a state, and a rate of its own.
    """

    name: str
    citation: str
    begin: Callable[[Any], Stepping | None]
    keeps: bool = True


OPTIMISERS: Table[ServerOptimiser] = Table("server optimiser", ServerOptimiser, group="edgefr.optimisers")
OPTIMISERS.register(ServerOptimiser("sgd", "FedAvg: McMahan et al. 2017", lambda settings: None, keeps=False))
OPTIMISERS.register(
    ServerOptimiser("momentum", "FedAvgM: Hsu et al. 2019", lambda s: RunningSum(s.optimiser_lr, s.momentum))
)
OPTIMISERS.register(
    ServerOptimiser(
        "adam",
        "FedAdam: Reddi et al. 2021, Algorithm 2",
        lambda s: Moments(s.optimiser_lr, s.floor),
    )
)
