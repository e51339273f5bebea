"""FedRAP is the local program of additive personalisation."""

from __future__ import annotations

import math

from torch import Tensor

from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.item_table import ItemTable
from edgefr.methods.losses import RATE_OF_ITEMS, linear_scores
from export.batches import Batch
from export.program import Phase, Tensors, TensorSpec


class FedRAP(ItemTable):
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
    settings: FedRAPSettings

    def own(self) -> dict[str, TensorSpec]:
        return {"personal": TensorSpec((self.items, self.settings.dim), "private", "rows"), **super().own()}

    def rates(self, items: int) -> dict[str, float]:
        s = self.settings
        tables = {"item": s.item_lr or s.lr * items * RATE_OF_ITEMS, "personal": s.own_lr}
        return tables | dict.fromkeys(("scorer.weight", "scorer.bias"), s.lr)

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return linear_scores(batch, user, vectors + batch.rows(tensors["personal"]), tensors["scorer.bias"])

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        shared, own = batch.rows(tensors["item"]), batch.rows(tensors["personal"])
        grown = self.grown(phase.number)
        apart = batch.mean((own - shared).square().mean(-1))  # Eq. 4: -lambda(t) ||D - C||²
        sparse = batch.mean(shared.abs().mean(-1))  # Eq. 5: mu(t) ||C||_1
        return super().loss(tensors, batch, phase) + grown * (
            self.settings.sparse * sparse - self.settings.apart * apart
        )

    def grown(self, number: int) -> float:
        """Return the share of both weights that counts in a round: 0 at the start, 1 in the end."""
        over = self.settings.curriculum
        return 1.0 if over is None else math.tanh(number / over)
