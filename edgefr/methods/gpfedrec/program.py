"""GPFedRec is the local program of graph-guided personalisation. Its server rule is `cloud.rules.graph`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.losses import (
    RATE_OF_ITEMS,
    first_of,
    init_linear,
    init_rows,
    init_scorer,
    init_vectors,
    learning,
    linear_scores,
    worth,
)
from export.batches import Batch
from export.given import Given
from export.program import LocalProgram, Phase, Pull, Tensors, TensorSpec

ITEM, MADE = "item", "received.item"


class GPFedRec(LocalProgram):
    """GPFedRec scores by w_u · t_ui + b_u with PFedRec's private scorer (Zhang et al., KDD 2024).

    A round starts from the shared table. The loss adds the mean squared distance to the table that the server made for
    this client of similar clients' tables, of rows in the batch alone unless `pulls` says all. Recommendations read the
    table made for the client (`recommends`).

    >>> program = GPFedRec(GPFedRecSettings(dim=4), items=10, local_epochs=1)
    >>> program.specs["received.item"].place
    'received'
    """

    name = "gpfedrec"
    pointwise = True
    needs_history = False

    def __init__(self, settings: GPFedRecSettings, items: int, local_epochs: int):
        self.settings, self.items = settings, items
        self.frozen: dict[str, Tensor] = {}
        self.specs = {
            ITEM: TensorSpec((items, settings.dim), "shared", "rows"),
            MADE: TensorSpec((items, settings.dim), "received", "rows"),
            **{name: TensorSpec(shape, "private") for name, shape in self.scorer_shapes().items()},
        }
        trains = tuple(name for name, spec in self.specs.items() if spec.place != "received")
        item_lr = settings.item_lr or settings.lr * (items * RATE_OF_ITEMS - 1)
        lr = dict.fromkeys(trains, settings.lr) | {ITEM: item_lr} | self.other_rates()
        rate = 2 * settings.pull * item_lr / (items * settings.dim)  # a step of SGD on the mean squared distance
        pulls = {"batch": {}, "table": {ITEM: Pull(MADE, rate)}}[settings.pulls]
        self.phases = (
            Phase(
                "federated",
                tuple(self.specs),
                trains,
                local_epochs,
                "sgd",
                lr,
                draws=purposes.FEDERATED,
                which=settings.objective.which,
                pulls=pulls,
            ),
        )
        learning(self, settings)

    def scorer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the private scorer's tensors."""
        return {"scorer.weight": (self.settings.dim,), "scorer.bias": (1,)}

    def other_rates(self) -> dict[str, float]:
        return {}

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {ITEM: init_rows(seed, ITEM, self.specs[ITEM].shape, self.settings.init_scale)} | first_of(self.settings)

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return init_scorer(seed, self.settings.dim, len(clients))

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors[ITEM])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["scorer.weight"])

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
        widths = (2 * self.settings.dim, *self.settings.hidden, 1)
        out: dict[str, tuple[int, ...]] = {"user": (self.settings.dim,)}
        for number, (wide, narrow) in enumerate(pairwise(widths)):
            out |= {f"scorer.{number}.weight": (wide, narrow), f"scorer.{number}.bias": (narrow,)}
        return out

    def other_rates(self) -> dict[str, float]:
        return {"user": self.settings.user_lr or self.settings.lr * (RATE_OF_ITEMS - 1)}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        """Make one model and hand it to every client, as the released server does."""
        server = torch.zeros(1, dtype=torch.int64)
        out = {"user": init_vectors(seed, purposes.INIT_USER, server, self.settings.dim, 1.0)}
        for number in range(len(self.settings.hidden) + 1):
            name = f"scorer.{number}"
            shape = self.specs[f"{name}.weight"].shape
            out |= {f"{name}.{part}": value for part, value in init_linear(seed, name, shape[0], shape[1]).items()}
        return {name: value.repeat(len(clients), *[1] * (value.ndim - 1)) for name, value in out.items()}

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["user"])

    def scores(self, tensors: Tensors, batch: Batch, rows: Tensor, user: Tensor) -> Tensor:
        of_user, of_item = tensors["scorer.0.weight"].split(self.settings.dim, dim=-2)
        constant = torch.matmul(user, of_user).squeeze(-2) + tensors["scorer.0.bias"]
        x, last = batch.dense(rows, of_item, constant).relu_(), len(self.settings.hidden)
        for number in range(1, last + 1):
            x = batch.dense(x, tensors[f"scorer.{number}.weight"], tensors[f"scorer.{number}.bias"])
            x = x if number == last else x.relu_()
        return x.squeeze(-1)


def build(settings: GPFedRecSettings, given: Given) -> GPFedRec:
    kind = {"linear": GPFedRec, "mlp": WithLayers}[settings.scorer]
    return kind(settings, given.items, given.local_epochs)
