"""FedLightGCN is the local program of light graph convolution on a client's own graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from edge.sampling import Selection
from edgefr.methods.fedlightgcn.settings import FedLightGCNSettings
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.losses import compared
from export.batches import Batch, Window, rows_at
from export.program import Phase, Tensors


class FedLightGCN(FedMF):
    """FedLightGCN scores by <e_u, q_i>, where e_u is the mean of the layers of LightGCN (He et al. 2020, Eq. 3, 4).

    The graph of a client is a star: its user u and the n newest items it has, each of degree 1. Layers alternate on it:
    u is p_u in even layers and m = sum_j q_j / sqrt(n) in odd ones, so K layers need one sum. A candidate is not in
    the graph yet, so it is q_i; a positive is scored on the graph of what was there before it. p_u [dim] stays on the
    device, the item table [items, dim] is shared.

    >>> program = FedLightGCN(FedLightGCNSettings(dim=4, layers=2), items=10, local_epochs=1)
    >>> program.shares, program.window
    ((0.6666666666666666, 0.3333333333333333), 20)
    """

    name = "fedlightgcn"
    needs_history = True
    settings: FedLightGCNSettings  # type: ignore[assignment]

    def __init__(self, settings: FedLightGCNSettings, items: int, local_epochs: int, counted: int | None = None):
        self.window, self.pointwise = settings.neighbours, False
        super().__init__(settings, items, local_epochs, counted)

    @property
    def shares(self) -> tuple[float, float]:
        """Return which shares of the layers 0 to K are p_u, and the sum over the neighbours."""
        layers = self.settings.layers
        return (layers // 2 + 1) / (layers + 1), (layers + 1) // 2 / (layers + 1)

    @property
    def score_form(self) -> None:
        return None

    def phase(self, name: str, epochs: int, rates: dict[str, float], **more: Any) -> Phase:
        which = Selection(pairs=True, context=self.settings.neighbours)
        return Phase(name, tuple(self.specs), tuple(rates), epochs, "sgd", rates, which=which, **more)

    def convolved(self, user: Tensor, neighbours: Tensor, there: Tensor) -> Tensor:
        """Return e_u: users [..., d], neighbours [..., n, d], 1 where there is one [..., n] -> [..., d]."""
        own, others = self.shares
        degree = there.sum(-1, keepdim=True).clamp(min=1).sqrt()
        return own * user + others * (neighbours * there.unsqueeze(-1)).sum(-2) / degree

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        assert history is not None
        assert isinstance(batch.history, Window)
        return self.convolved(tensors["user"], history, batch.history.label).unsqueeze(-2)

    def gradients(self, tensors: Tensors, batch: Batch, phase: Phase) -> dict[str, Tensor]:
        rows, pairs = tensors["item"], batch.pairs
        host = rows.ndim == 3 and rows.device.type == "cpu" and rows.dtype == torch.float32
        if not host or pairs is None or pairs.context is None or pairs.there is None:
            return super().gradients(tensors, batch, phase)
        from edgefr.methods.fedlightgcn import kernels

        arrays = (v.detach().contiguous().numpy() for v in (rows, pairs.candidates, pairs.context, pairs.there))
        graphs = kernels.Graphs(*arrays, *map(np.float32, self.shares))
        scores = torch.empty(pairs.candidates.shape)
        users = np.empty((*scores.shape[:2], rows.shape[-1]), np.float32)
        kernels.forward(graphs, tensors["user"].detach().numpy(), users, scores.numpy())
        scores.requires_grad_()
        (by_score,) = torch.autograd.grad(compared(scores[..., 0], scores[..., 1:], batch, self.settings), scores)
        found = {"item": torch.zeros(rows.shape), "user": torch.zeros(tensors["user"].shape)}
        kernels.backward(graphs, users, by_score.numpy(), *(value.numpy() for value in found.values()))
        return {name: found[name] for name in phase.trains}

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        pairs, rows = batch.pairs, self.vectors(tensors, batch)
        assert pairs is not None
        assert pairs.context is not None
        assert pairs.there is not None
        users = self.convolved(tensors["user"].unsqueeze(-2), rows_at(rows, pairs.context), pairs.there)
        scores = (rows_at(rows, pairs.candidates) @ users.unsqueeze(-1)).squeeze(-1)
        return compared(scores[..., 0], scores[..., 1:], batch, self.settings)
