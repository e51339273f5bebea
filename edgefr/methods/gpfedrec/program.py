"""GPFedRec is the local program of graph-guided personalisation. Its server rule is `cloud.graph`."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from edgefr import purposes
from edgefr.methods.given import Given
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.losses import init_rows
from edgefr.methods.scorer import RATE_OF_ITEMS, init_scorer, linear_scores
from export.batches import Batch
from export.program import LocalProgram, Phase, Tensors, TensorSpec


class GPFedRec(LocalProgram):
    """GPFedRec scores by score(u, i) = w_u · t_ui + b_u (Zhang et al., KDD 2024).

    Its private scorer (w_u, b_u) is PFedRec's.

    A round starts from the table that all clients share. Its loss adds the mean squared distance to the table that the
    server made for this client of the tables of those who are like it. The mean is over the whole table, but only rows
    of the batch count and are pulled: a client that moved every row every round would have a table of its own. In
    the end t_u is the table made for the client (`recommends`).

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
            "item": TensorSpec((items, settings.dim), "shared", "rows"),
            "received.item": TensorSpec((items, settings.dim), "received", "rows"),
            "scorer.weight": TensorSpec((settings.dim,), "private"),
            "scorer.bias": TensorSpec((1,), "private"),
        }
        trained = tuple(name for name, spec in self.specs.items() if spec.place != "received")
        item_lr = settings.item_lr or settings.lr * (items * RATE_OF_ITEMS - 1)
        lr = dict.fromkeys(trained, settings.lr) | {"item": item_lr}
        self.phases = (
            Phase("federated", tuple(self.specs), trained, local_epochs, "sgd", lr, draws=purposes.FEDERATED),
        )

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {"item": init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return init_scorer(seed, self.settings.dim, len(clients))

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["scorer.weight"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        table = {"graph": "received.item", "global": "item"}[self.settings.recommends]
        if table != "item":
            vectors = batch.rows(tensors[table])
        return linear_scores(batch, user, vectors, tensors["scorer.bias"])

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        rows, made = batch.rows(tensors["item"]), batch.rows(tensors["received.item"])
        user = batch.own(tensors["scorer.weight"])
        scores = linear_scores(batch, user, rows, tensors["scorer.bias"])
        bce = binary_cross_entropy_with_logits(scores, batch.label, batch.weight, reduction="sum")
        return bce + self.settings.pull * batch.over_items((rows - made).square().mean(-1)) / self.items


def build(settings: GPFedRecSettings, given: Given) -> GPFedRec:
    """Build the program by these settings."""
    return GPFedRec(settings, given.items, given.local_epochs)
