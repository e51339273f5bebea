"""FedNCF is the local program of federated neural collaborative filtering with a one-layer scorer."""

from __future__ import annotations

import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.losses import (
    RATE_OF_VECTORS,
    first_of,
    form_of,
    init_rows,
    init_scorer,
    init_vectors,
    learning,
    linear_scores,
    scores_of,
    worth,
)
from export.batches import Batch
from export.given import Given
from export.program import Form, LocalProgram, Phase, Tensors, TensorSpec


class FedNCF(LocalProgram):
    """FedNCF scores by w_u · [p_u; q_i] + b_u; p_u [dim], w_u [2 dim] and b_u are private, the item table is shared.

    With the one linear layer of F3CRec §5.1 p_u adds the same number to all of a client's scores: it never changes a
    RANKING, but takes part in training as a second bias.

    >>> program = FedNCF(FedNCFSettings(dim=4), items=10, local_epochs=1)
    >>> program.specs["scorer.weight"].shape, program.phases[0].lr["item"]
    ((8,), 170.0)
    """

    name = "fedncf"
    pointwise = True
    needs_history = False

    def __init__(self, settings: FedNCFSettings, items: int, local_epochs: int, counted: int | None = None):
        self.settings = settings
        self.frozen: dict[str, Tensor] = {}
        self.specs = {
            "item": TensorSpec((items, settings.dim), "shared", "rows"),
            "user": TensorSpec((settings.dim,), "private"),
            "scorer.weight": TensorSpec((2 * settings.dim,), "private"),
            "scorer.bias": TensorSpec((1,), "private"),
        }
        lr = {
            "item": settings.item_lr or settings.lr * (counted or items) * RATE_OF_VECTORS,
            "user": settings.user_lr or settings.lr * RATE_OF_VECTORS,
            "scorer.weight": settings.lr,
            "scorer.bias": settings.lr,
        }
        every = tuple(self.specs)
        which = settings.objective.which
        self.phases = (
            Phase("federated", every, every, local_epochs, "sgd", lr, draws=purposes.FEDERATED, which=which),
        )
        learning(self, settings)

    @property
    def score_form(self) -> Form | None:
        return form_of(self.settings, "item", "scorer.weight", beside="user", bias="scorer.bias")

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {"item": init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)} | first_of(
            self.settings
        )

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        ids = {"own": clients, "same": torch.zeros_like(clients)}[self.settings.user_start]
        user = init_vectors(seed, purposes.INIT_USER, ids, self.settings.dim, self.settings.init_scale)
        return {"user": user} | init_scorer(seed, 2 * self.settings.dim, len(clients))

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["scorer.weight"][..., self.settings.dim :])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        of_user = tensors["scorer.weight"][..., : self.settings.dim] * tensors["user"]
        constant = of_user.sum(-1, keepdim=True) + tensors["scorer.bias"]
        return linear_scores(batch, user, vectors, constant)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        return worth(scores_of(self, tensors, batch), batch, self.settings, tensors)


def build(settings: FedNCFSettings, given: Given) -> FedNCF:
    return FedNCF(settings, given.items, given.local_epochs, given.counted)
