"""Optimiser steps are functions on tensors, with or without a leading client dimension; and pulls beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.host_transfer import surely, there
from edge.optimiser import BETA_1, BETA_2, EPSILON, corrections
from export.program import Phase, Pull
from privacy.table import Table

Numbers = npt.NDArray[np.int64]
Factor = float | Tensor
"""One number for all values, or a tensor that broadcasts against them."""


def sgd(parameter: Tensor, gradient: Tensor, lr: Factor) -> None:
    """Move a parameter in place: p -= lr g."""
    if isinstance(lr, Tensor):
        parameter.addcmul_(gradient, lr, value=-1.0)
    else:
        parameter.sub_(gradient, alpha=lr)


def adam(
    parameter: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    size: Factor,
    epsilon: Factor,
    beta_2: float = BETA_2,
) -> None:
    """Take one Adam step in place (Kingma & Ba, 2015, Alg. 1); `size`, `epsilon` of `edge.optimiser.corrections`."""
    first.lerp_(gradient, 1 - BETA_1)
    second.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)
    if isinstance(size, Tensor):
        parameter.addcdiv_(first * size, second.sqrt().add_(epsilon), value=-1.0)
    else:
        parameter.addcdiv_(first, second.sqrt().add_(epsilon), value=-size)


@dataclass(frozen=True)
class OptimiserRule:
    """An optimiser's rule has a name; `moments`: whether `step` is Adam's kind, with two moments of every value."""

    name: str
    step: Callable[..., None]
    moments: bool


RULES: Table[OptimiserRule] = Table("optimiser", OptimiserRule)
"""How a client trains; the same functions are traced for devices."""

RULES.register(OptimiserRule("sgd", sgd, moments=False))
RULES.register(OptimiserRule("adam", adam, moments=True))


class Optimiser:
    """This is the state of one phase: moments (Adam) of every trained tensor, fresh at the start.

    `shapes` are those of whole trained tensors, of which a step may concern some rows.
    """

    def __init__(self, kind: str, lr: Mapping[str, float], shapes: Mapping[str, Sequence[int]], beta_2: float = BETA_2):
        self.rule, self.lr, self.shapes, self.beta_2 = RULES[kind], lr, shapes, beta_2
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, phase: Phase, shape: Callable[[str], Sequence[int]]) -> Optimiser:
        """Return the optimiser of a phase, whose tensors have these shapes by name."""
        return cls(phase.optimiser, phase.lr, {name: shape(name) for name in phase.trains}, phase.beta_2)

    def step(
        self, name: str, parameter: Tensor, gradient: Tensor, step: Numbers, rows: Tensor | slice = slice(None)
    ) -> None:
        """Change `parameter` in place; it is `rows` of tensor `name`, and `step` is each one's step number.

        Rows that a step does not read keep their value and moments (as in torch.optim.SparseAdam).
        """
        if not self.rule.moments:
            self.rule.step(parameter, gradient, self.lr[name])
            return
        if name not in self.moments:
            self.moments[name] = gradient.new_zeros(self.shapes[name]), gradient.new_zeros(self.shapes[name])
        first, second = (moment[rows] for moment in self.moments[name])
        if step.size:
            self._step(name, (parameter, gradient, first, second), step)
        if isinstance(rows, Tensor):
            for moment, value in zip(self.moments[name], (first, second), strict=True):
                moment[rows] = value

    def _step(self, name: str, own: tuple[Tensor, Tensor, Tensor, Tensor], step: Numbers) -> None:
        """Take a step of a rule with moments. torch's kernel passes over them once, where all rows are at one step."""
        alike = self.rule.step is adam and own[0].device.type == "cpu" and bool((step == step.flat[0]).all())
        if alike and all(part.is_contiguous() for part in (own[0], *own[2:])):
            parameter, gradient, first, second = own
            torch._fused_adam_(
                [parameter],
                [gradient.contiguous()],
                [first],
                [second],
                [],
                [torch.tensor(float(step.flat[0]))],
                lr=self.lr[name],
                beta1=BETA_1,
                beta2=self.beta_2,
                weight_decay=0.0,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )
            return
        factors = self._factors(step, self.lr[name], own[0])
        self.rule.step(*own, *factors, self.beta_2)

    def _factors(self, step: Numbers, lr: float, parameter: Tensor) -> tuple[Factor, Factor]:
        """Return size and epsilon: numbers while all rows are at the same step, else one of each per leading row."""
        factor, epsilon = corrections(step, self.beta_2)
        if (step == step.flat[0]).all():
            return lr * float(factor.flat[0]), float(epsilon.flat[0])
        shape = (-1,) + (1,) * (parameter.ndim - 1)
        size, small = (there(part, parameter.device).to(parameter).reshape(shape) for part in (lr * factor, epsilon))
        return size, small

    def change(self, name: str, gradient: Tensor, step: Numbers, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return what a step adds to `rows` of tensor `name`."""
        if not self.rule.moments and self.rule.step is sgd:  # as `step`, without a table of zeros
            return gradient.mul(-self.lr[name])
        change = torch.zeros_like(gradient)
        self.step(name, change, gradient, step, rows)
        return change


@dataclass
class Pulled:
    """This is a table of a shard whose rows every step pulls (`Phase.pulls`): each is moved when it is read.

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
