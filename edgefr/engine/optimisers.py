"""Optimiser steps as functions on tensors, with or without a leading client dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
Numbers = npt.NDArray[np.int64]


def sgd(parameter: Tensor, gradient: Tensor, lr: float) -> None:
    """p -= lr g, in place."""
    parameter.sub_(gradient, alpha=lr)


def adam(parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: Numbers, lr: float) -> None:
    """One Adam step in place (Kingma & Ba, 2015, Alg. 1, with the two bias corrections moved into size and epsilon).

    `step` [n] or [] counts from 1 and may differ between the leading rows of `parameter`. It stays on the host.
    """
    if not step.size:
        return
    first.lerp_(gradient, 1 - BETA_1)
    second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
    root = np.sqrt(1 - BETA_2**step)
    size, epsilon = lr * root / (1 - BETA_1**step), EPSILON * root
    if (step == step.flat[0]).all():  # all clients are at the same step: numbers, not tensors
        parameter.addcdiv_(first, second.sqrt().add_(float(epsilon.flat[0])), value=-float(size.flat[0]))
        return
    shape = (-1,) + (1,) * (parameter.ndim - 1)
    sizes, epsilons = (torch.from_numpy(part).to(parameter).reshape(shape) for part in (size, epsilon))
    parameter.addcdiv_(first * sizes, second.sqrt().add_(epsilons), value=-1.0)


class Optimiser:
    """The state of one phase of local training: moments (Adam) of every trained tensor, fresh at the start.

    `shapes` are those of the whole trained tensors, of which a step may concern some rows.
    """

    def __init__(self, kind: str, lr: Mapping[str, float], shapes: Mapping[str, Sequence[int]]):
        self.kind, self.lr, self.shapes = kind, lr, shapes
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}

    def step(
        self, name: str, parameter: Tensor, gradient: Tensor, step: Numbers, rows: Tensor | slice = slice(None)
    ) -> None:
        """Change `parameter` in place; it stands for `rows` of tensor `name`, and `step` is each one's step number.

        Rows that a step does not read keep their value and their moments (as in torch.optim.SparseAdam).
        """
        if self.kind == "sgd":
            sgd(parameter, gradient, self.lr[name])
            return
        if name not in self.moments:
            self.moments[name] = gradient.new_zeros(self.shapes[name]), gradient.new_zeros(self.shapes[name])
        first, second = (moment[rows] for moment in self.moments[name])
        adam(parameter, gradient, first, second, step, self.lr[name])
        if isinstance(rows, Tensor):
            for moment, value in zip(self.moments[name], (first, second), strict=True):
                moment[rows] = value

    def change(self, name: str, gradient: Tensor, step: Numbers, rows: Tensor | slice = slice(None)) -> Tensor:
        """What a step adds to `rows` of tensor `name`."""
        if self.kind == "sgd":
            return gradient.mul(-self.lr[name])
        change = torch.zeros_like(gradient)
        self.step(name, change, gradient, step, rows)
        return change
