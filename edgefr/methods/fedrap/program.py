"""FedRAP is the local program of additive personalisation."""

from __future__ import annotations

import math

from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.losses import (
    RATE_OF_ITEMS,
    first_of,
    init_rows,
    init_scorer,
    learning,
    linear_scores,
    scores_of,
    worth,
)
from export.batches import Batch
from export.given import Given
from export.program import LocalProgram, Phase, Tensors, TensorSpec


class FedRAP(LocalProgram):
    """FedRAP scores by w_u · (c_i + d_ui) + b_u (Li, Long & Zhou, ICLR 2024).

    c [items, dim] is shared; the scorer (w_u, b_u) and rows d_u of items in the client's examples are private. The loss
    adds -a mean (d - c)² + s mean |c| over the batch; a and s grow from round to round.

    Private rows start as zeros. The released code starts all clients from one random table, which is the same model
    with another first c.

    >>> program = FedRAP(FedRAPSettings(dim=4), items=10, local_epochs=1)
    >>> {name: (spec.place, spec.kind) for name, spec in program.specs.items()}["personal"]
    ('private', 'rows')
    """

    name = "fedrap"
    pointwise = True
    needs_history = False

    def __init__(self, settings: FedRAPSettings, items: int, local_epochs: int):
        self.settings = settings
        self.frozen: dict[str, Tensor] = {}
        self.specs = {
            "item": TensorSpec((items, settings.dim), "shared", "rows"),
            "personal": TensorSpec((items, settings.dim), "private", "rows"),
            "scorer.weight": TensorSpec((settings.dim,), "private"),
            "scorer.bias": TensorSpec((1,), "private"),
        }
        every = tuple(self.specs)
        item_lr = settings.item_lr or settings.lr * items * RATE_OF_ITEMS
        lr = dict.fromkeys(every, settings.lr) | {"item": item_lr}
        lr["personal"] = settings.own_lr
        which = settings.objective.which
        self.phases = (
            Phase("federated", every, every, local_epochs, "sgd", lr, draws=purposes.FEDERATED, which=which),
        )
        learning(self, settings)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {"item": init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)} | first_of(
            self.settings
        )

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return init_scorer(seed, self.settings.dim, len(clients))

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["scorer.weight"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return linear_scores(batch, user, vectors + batch.rows(tensors["personal"]), tensors["scorer.bias"])

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        shared, own = batch.rows(tensors["item"]), batch.rows(tensors["personal"])
        grown = self.grown(phase.number)
        apart = batch.mean((own - shared).square().mean(-1))  # Eq. 4: -lambda(t) ||D - C||²
        sparse = batch.mean(shared.abs().mean(-1))  # Eq. 5: mu(t) ||C||_1
        regularised = grown * (self.settings.sparse * sparse - self.settings.apart * apart)
        return worth(scores_of(self, tensors, batch), batch, self.settings, tensors) + regularised

    def grown(self, number: int) -> float:
        """Return the share of both weights that counts in a round: 0 at the start, 1 in the end."""
        over = self.settings.curriculum
        return 1.0 if over is None else math.tanh(number / over)


def build(settings: FedRAPSettings, given: Given) -> FedRAP:
    return FedRAP(settings, given.items, given.local_epochs)
