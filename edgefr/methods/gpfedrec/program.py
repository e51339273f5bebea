"""GPFedRec is the local program of graph-guided personalisation. Its server rule is `cloud.rules.graph`."""

from __future__ import annotations

import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.item_table import ItemTable
from edgefr.methods.losses import (
    RATE_OF_ITEMS,
    init_linear,
    init_vectors,
    layered_scores,
    linear_scores,
    mlp_shapes,
    worth,
)
from export.batches import Batch
from export.given import Given
from export.program import Phase, Pull, Tensors, TensorSpec

ITEM, MADE = "item", "received.item"


class GPFedRec(ItemTable):
    """GPFedRec scores by w_u · t_ui + b_u with PFedRec's private scorer (Zhang et al., KDD 2024).

    A round starts from the shared table. The loss adds the mean squared distance to the table that the server made for
    this client of similar clients' tables, of rows in the batch alone unless `pulls` says all. Recommendations read the
    table made for the client (`recommends`).

    >>> program = GPFedRec(GPFedRecSettings(dim=4), items=10, local_epochs=1)
    >>> program.specs["received.item"].place
    'received'
    """

    name = "gpfedrec"
    settings: GPFedRecSettings

    def own(self) -> dict[str, TensorSpec]:
        made = TensorSpec((self.items, self.settings.dim), "received", "rows")
        return {MADE: made, **{name: TensorSpec(shape, "private") for name, shape in self.scorer_shapes().items()}}

    def scorer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the private scorer's tensors."""
        return {"scorer.weight": (self.settings.dim,), "scorer.bias": (1,)}

    def rates(self, items: int) -> dict[str, float]:
        s = self.settings
        return {ITEM: s.item_lr or s.lr * (items * RATE_OF_ITEMS - 1), **dict.fromkeys(self.scorer_shapes(), s.lr)}

    def work(self, epochs: int, rates: dict[str, float]) -> tuple[Phase, ...]:
        s = self.settings
        rate = 2 * s.pull * rates[ITEM] / (self.items * s.dim)  # a step of SGD on the mean squared distance
        pulls = {"batch": {}, "table": {ITEM: Pull(MADE, rate)}}[s.pulls]
        return (self.phase("federated", epochs, rates, draws=purposes.FEDERATED, pulls=pulls),)

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        table = {"graph": MADE, "global": ITEM}[self.settings.recommends]
        return self.scores(tensors, batch, vectors if table == ITEM else batch.rows(tensors[table]), user)

    def scores(self, tensors: Tensors, batch: Batch, rows: Tensor, user: Tensor) -> Tensor:
        return linear_scores(batch, user, rows, tensors["scorer.bias"])

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        rows, made = batch.rows(tensors[ITEM]), batch.rows(tensors[MADE])
        scores = self.scores(tensors, batch, rows, self.user(tensors, batch, None, rows))
        apart = torch.nn.functional.mse_loss(rows, made, reduction="none").sum(-1)
        pulled = batch.over_items(apart) / (self.items * self.settings.dim)
        return worth(scores, batch, self.settings, tensors) + self.settings.pull * pulled


class WithLayers(GPFedRec):
    """This is GPFedRec with its own code's scorer: a user vector p_u, and layers with ReLU between on [p_u, t_ui].

    >>> program = WithLayers(GPFedRecSettings(dim=4, scorer="mlp", hidden=[8, 4]), items=10, local_epochs=1)
    >>> program.specs["scorer.0.weight"].shape, program.specs["scorer.2.weight"].shape
    ((8, 8), (4, 1))
    """

    pointwise = False

    def scorer_shapes(self) -> dict[str, tuple[int, ...]]:
        dim = self.settings.dim
        return {"user": (dim,), **mlp_shapes("scorer", (2 * dim, *self.settings.hidden, 1))}

    def rates(self, items: int) -> dict[str, float]:
        return super().rates(items) | {"user": self.settings.user_lr or self.settings.lr * (RATE_OF_ITEMS - 1)}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        """Make one model and hand it to every client, as the released server does."""
        server = torch.zeros(1, dtype=torch.int64)
        out = {"user": init_vectors(seed, purposes.INIT_USER, server, self.settings.dim, 1.0)}
        for number in range(len(self.settings.hidden) + 1):
            name = f"scorer.{number}"
            wide, narrow = self.specs[f"{name}.weight"].shape
            out |= {f"{name}.{part}": value for part, value in init_linear(seed, name, wide, narrow).items()}
        return {name: value.repeat(len(clients), *[1] * (value.ndim - 1)) for name, value in out.items()}

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["user"])

    def scores(self, tensors: Tensors, batch: Batch, rows: Tensor, user: Tensor) -> Tensor:
        return layered_scores(tensors, batch, "scorer", rows, user)


def build(settings: GPFedRecSettings, given: Given) -> GPFedRec:
    return {"linear": GPFedRec, "mlp": WithLayers}[settings.scorer].build(settings, given)
