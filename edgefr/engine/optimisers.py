"""Optimiser steps as functions on tensors, with or without a leading client dimension. Updated in place."""

from __future__ import annotations

import torch
from torch import Tensor

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def sgd(parameter: Tensor, gradient: Tensor, lr: float) -> None:
    """p -= lr g."""
    parameter.sub_(gradient, alpha=lr)


def adam(parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: Tensor, lr: float) -> None:
    """One Adam step (Kingma & Ba, 2015, Alg. 1, with the two bias corrections moved into step size and epsilon).

    `step` (float64, [C] or []) counts from 1 and may differ between clients.
    """
    first.lerp_(gradient, 1 - BETA_1)
    second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
    root = (1 - BETA_2**step).sqrt()
    size, epsilon = lr * root / (1 - BETA_1**step), EPSILON * root
    if not step.numel():
        return
    if bool((step == step.max()).all()):  # all clients are at the same step: numbers, not tensors
        parameter.addcdiv_(first, second.sqrt().add_(float(epsilon.max())), value=-float(size.max()))
        return
    shape = (-1,) + (1,) * (parameter.ndim - 1)
    denominator = second.sqrt().add_(epsilon.to(parameter.dtype).reshape(shape))
    parameter.addcdiv_(first * size.to(parameter.dtype).reshape(shape), denominator, value=-1.0)


class Optimiser:
    """The state of one phase of local training: moments (Adam) of every trained tensor, fresh at the start."""

    def __init__(self, kind: str, lr: dict[str, float], trained: dict[str, Tensor]):
        self.kind, self.lr = kind, lr
        self.moments = (
            {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in trained.items()} if kind == "adam" else {}
        )

    def step(
        self, name: str, parameter: Tensor, gradient: Tensor, step: Tensor, rows: Tensor | slice = slice(None)
    ) -> None:
        """Change `parameter` in place; it stands for `rows` of tensor `name`, and `step` is each one's step number.

        Rows that a step does not read keep their value and their moments (as in torch.optim.SparseAdam).
        """
        if self.kind == "sgd":
            sgd(parameter, gradient, self.lr[name])
            return
        first, second = (moment[rows] for moment in self.moments[name])
        adam(parameter, gradient, first, second, step, self.lr[name])
        if isinstance(rows, Tensor):
            for moment, value in zip(self.moments[name], (first, second), strict=True):
                moment[rows] = value
