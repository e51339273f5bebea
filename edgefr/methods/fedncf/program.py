"""FedNCF is the local program of federated neural collaborative filtering."""

from __future__ import annotations

import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.item_table import ItemTable
from edgefr.methods.losses import (
    RATE_OF_VECTORS,
    form_of,
    init_mlp,
    init_scorer,
    init_vectors,
    layered_scores,
    linear_scores,
    mlp_shapes,
)
from export.batches import Batch
from export.given import Given
from export.program import ScoreForm, Tensors, TensorSpec


class FedNCF(ItemTable):
    """FedNCF scores by w_u · [p_u; q_i] + b_u; p_u [dim], w_u [2 dim] and b_u are private, the item table is shared.

    With the one linear layer of F3CRec §5.1 p_u adds the same number to all of a client's scores: it never changes a
    RANKING, but takes part in training as a second bias.

    >>> program = FedNCF(FedNCFSettings(dim=4), items=10, local_epochs=1)
    >>> program.specs["scorer.weight"].shape, program.phases[0].lr["item"]
    ((8,), 170.0)
    """

    name = "fedncf"
    settings: FedNCFSettings

    def own(self) -> dict[str, TensorSpec]:
        shapes = {"user": (self.settings.dim,), "scorer.weight": (2 * self.settings.dim,), "scorer.bias": (1,)}
        return {name: TensorSpec(shape, "private") for name, shape in shapes.items()}

    def rates(self, items: int) -> dict[str, float]:
        s = self.settings
        vectors = {"item": s.item_lr or s.lr * items * RATE_OF_VECTORS, "user": s.user_lr or s.lr * RATE_OF_VECTORS}
        return vectors | dict.fromkeys(("scorer.weight", "scorer.bias"), s.lr)

    @property
    def score_form(self) -> ScoreForm | None:
        return form_of(self.settings, "item", "scorer.weight", beside="user", bias="scorer.bias")

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        ids = {"own": clients, "same": torch.zeros_like(clients)}[self.settings.user_start]
        user = init_vectors(seed, purposes.INIT_USER, ids, self.settings.dim, self.settings.init_scale)
        return {"user": user} | init_scorer(seed, 2 * self.settings.dim, len(clients))

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["scorer.weight"][..., self.settings.dim :])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        of_user = tensors["scorer.weight"][..., : self.settings.dim] * tensors["user"]
        return linear_scores(batch, user, vectors, of_user.sum(-1, keepdim=True) + tensors["scorer.bias"])


class WithNetwork(FedNCF):
    """This is FedNCF whose server averages a network on [p_u; q_i]; p_u alone is private (Perifanis & Efraimidis 2022).

    >>> program = WithNetwork(FedNCFSettings(dim=4, scorer="mlp", hidden=[8]), items=10, local_epochs=1)
    >>> program.specs["network.0.weight"].shape, program.specs["network.1.weight"].place
    ((8, 8), 'shared')
    """

    pointwise = False

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of the network's layers, from [p_u; q_i] to a score."""
        return (2 * self.settings.dim, *self.settings.hidden, 1)

    def own(self) -> dict[str, TensorSpec]:
        network = {name: TensorSpec(shape, "shared") for name, shape in mlp_shapes("network", self.widths).items()}
        return {"user": TensorSpec((self.settings.dim,), "private"), **network}

    def rates(self, items: int) -> dict[str, float]:
        vectors = {name: rate for name, rate in super().rates(items).items() if name in ("item", "user")}
        return vectors | dict.fromkeys(mlp_shapes("network", self.widths), self.settings.lr)

    @property
    def score_form(self) -> ScoreForm | None:
        return None

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return super().init_shared(seed) | init_mlp(seed, "network", self.widths)

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {"user": super().init_private(seed, clients)["user"]}

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["user"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return layered_scores(tensors, batch, "network", vectors, user)


def build(settings: FedNCFSettings, given: Given) -> FedNCF:
    return {"linear": FedNCF, "mlp": WithNetwork}[settings.scorer].build(settings, given)
