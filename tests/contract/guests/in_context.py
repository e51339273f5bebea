"""A loss that reads what a client had just before each positive: the mean of those items scores beside its vector."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from edge.sampling import Selection
from export.batches import Batch, rows_at
from export.program import Phase, Tensors
from tests.contract.guests.pairwise import Pairwise

LENGTH = 3


class InContext(Pairwise):
    """BPR of (mean of the context) · q + user · q."""

    def __init__(self, items: int, layout: Literal["flat", "padded"] = "flat"):
        super().__init__("bpr", items, layout)
        self.phases = tuple(replace(phase, which=Selection(pairs=True, context=LENGTH)) for phase in self.phases)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        vectors, pairs = self.vectors(tensors, batch), batch.pairs
        assert pairs is not None
        assert pairs.context is not None
        assert pairs.there is not None
        near = (rows_at(vectors, pairs.context) * pairs.there.unsqueeze(-1)).sum(-2)
        near = near / pairs.there.sum(-1, keepdim=True).clamp_min(1)
        scores = (rows_at(vectors, pairs.candidates) * near.unsqueeze(-2)).sum(-1)
        plain = pairs.of(self.score(tensors, batch, vectors, self.user(tensors, batch, None, vectors)))
        scores = scores + torch.cat([plain[0].unsqueeze(-1), plain[1]], dim=-1)
        return pairs.mean(torch.nn.functional.softplus(scores[..., 1:] - scores[..., :1]).mean(-1))
