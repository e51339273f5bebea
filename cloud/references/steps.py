"""Steps of Adam are taken on tables of which a batch reads few rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Steps:
    """These are steps of Adam on `leaves`, which move every row, those too that a batch did not read.

    Gradients of rows that are read by `embedding(..., sparse=True)` are laid into tables that are kept. `fused`: a step
    is one pass over a table, several times as fast, which rounds otherwise; where ReLUs make more than rounding of
    that, it is left.
    """

    def __init__(self, leaves: Sequence[Tensor], lr: float, fused: bool):
        self.leaves, self.adam = leaves, torch.optim.Adam(leaves, lr, fused=fused)
        self.slopes = [torch.zeros_like(leaf) for leaf in leaves]  # room for gradients of whole tables

    def take(self, loss: Tensor) -> None:
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for leaf, slope in zip(self.leaves, self.slopes, strict=True):
            if leaf.grad is not None and leaf.grad.is_sparse:
                rows, values = leaf.grad._indices()[0], leaf.grad._values()
                leaf.grad = slope.zero_().index_add_(0, rows, values)
        self.adam.step()
