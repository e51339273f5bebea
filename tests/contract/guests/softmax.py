"""A session method whose loss is a softmax over the whole catalogue, as SASRec's and GRU4Rec's later versions have."""

from __future__ import annotations

import torch
from torch import Tensor

from edgefr.methods.losses import init_rows
from export.batches import Batch, Window
from export.program import Phase, SessionProgram, Tensors, TensorSpec


class FullSoftmax(SessionProgram):
    """Features are a layer on the mean of the items so far; every item's score is their product with its row."""

    name = "full softmax"
    whole_catalogue = True

    def __init__(self, items: int, length: int, dim: int = 6, epochs: int = 3):
        self.window, self.dim = length, dim
        self.frozen: dict[str, Tensor] = {}
        self.specs = {"item": TensorSpec((items, dim), "shared", "rows"), "layer": TensorSpec((dim, dim), "shared")}
        both = tuple(self.specs)
        self.phases = (Phase("round", both, both, epochs, "adam", dict.fromkeys(both, 1e-2)),)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {name: init_rows(seed, name, spec.shape, 0.5) for name, spec in self.specs.items()}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {}

    def features(self, tensors: Tensors, rows: Tensor, window: Window) -> Tensor:
        """Features [..., L, d] of every position of a window whose items have these rows."""
        real = window.label.unsqueeze(-1)
        mean = (rows * real).cumsum(-2) / real.cumsum(-2).clamp_min(1)
        return torch.tanh(torch.matmul(mean, tensors["layer"]))

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        assert history is not None
        assert isinstance(batch.history, Window)
        return self.features(tensors, history, batch.history)[..., -1:, :]

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return torch.matmul(vectors, user.transpose(-1, -2)).squeeze(-1)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        assert isinstance(batch, Window)
        features = self.features(tensors, batch.rows(tensors["item"]), batch)
        scores = torch.matmul(features, batch.everything(tensors["item"]).transpose(-1, -2))
        right = scores.gather(-1, batch.target.unsqueeze(-1)).squeeze(-1)
        return batch.mean(torch.logsumexp(scores, dim=-1) - right)
