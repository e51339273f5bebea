"""Losses that compare a positive with the negatives drawn for it: BPR (Rendle et al., 2009) and a sampled softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from edge.sampling import Selection
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.batches import Batch
from export.program import Phase, Tensors


class Pairwise(FedMF):
    """FedMF whose loss compares scores; `layout` "padded" runs it as programs with dense layers run."""

    def __init__(self, loss: Literal["bpr", "softmax"], items: int, layout: Literal["flat", "padded"] = "flat"):
        super().__init__(FedMFSettings(dim=8, lr=0.5, item_lr=20.0, init_scale=0.3), items, local_epochs=2)
        self.name, self.kind, self.pointwise = loss, loss, layout == "flat"
        self.phases = tuple(replace(phase, which=Selection(pairs=True)) for phase in self.phases)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        vectors = self.vectors(tensors, batch)
        scores = self.score(tensors, batch, vectors, self.user(tensors, batch, None, vectors))
        assert batch.pairs is not None
        positive, negative = batch.pairs.of(scores)
        if self.kind == "bpr":
            return batch.pairs.mean(torch.nn.functional.softplus(negative - positive.unsqueeze(-1)).mean(-1))
        everything = torch.cat([positive.unsqueeze(-1), negative], dim=-1)
        return batch.pairs.mean(torch.logsumexp(everything, dim=-1) - positive)
