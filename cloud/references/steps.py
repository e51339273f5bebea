"""Steps of Adam are taken on tables of which a batch reads few rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Steps:
    """These are steps of Adam on `leaves`; rows that are read by `embedding(..., sparse=True)` cost no table each time.

    Adam moves every row at every step, those too that a batch did not read. `fused`: in one pass over a table, several
    times as fast, which rounds otherwise; where ReLUs make more than rounding of that, it is left.
    """

    def __init__(self, leaves: Sequence[Tensor], lr: float, fused: bool):
        self.leaves, self.adam = leaves, torch.optim.Adam(leaves, lr, fused=fused)
        self.slopes = [torch.zeros_like(leaf) for leaf in leaves]  # gradients of whole tables, by the last step
        self.read: list[Tensor | None] = [None] * len(self.slopes)  # the rows that are not 0 there

    def take(self, loss: Tensor) -> None:
        """Take a step down a loss."""
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for number, leaf in enumerate(self.leaves):
            if leaf.grad is not None and leaf.grad.is_sparse:
                leaf.grad = self._laid(number, leaf.grad)
        self.adam.step()

    def _laid(self, number: int, found: Tensor) -> Tensor:
        """Lay the gradient of the rows that were read into that of their table, and return it whole."""
        slope, before, now = self.slopes[number], self.read[number], found._indices()[0]
        if before is not None:
            slope.index_fill_(0, before, 0.0)
        self.read[number] = now
        return slope.index_add_(0, now, found._values())
