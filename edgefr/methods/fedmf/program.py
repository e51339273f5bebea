"""FedMF is the local program of federated matrix factorisation."""

from __future__ import annotations

from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.losses import first_of, form_of, init_rows, init_vectors, learning, scores_of, worth
from export.batches import Batch, inner
from export.given import Given
from export.program import Form, LocalProgram, Phase, Tensors, TensorSpec


class FedMF(LocalProgram):
    """FedMF scores by <p_u, q_i>; p_u [dim] stays on the device, the item table [items, dim] is shared.

    >>> program = FedMF(FedMFSettings(dim=4), items=10, local_epochs=1)
    >>> sorted(program.specs)
    ['item', 'user']
    """

    name = "fedmf"
    pointwise = True
    needs_history = False

    def __init__(self, settings: FedMFSettings, items: int, local_epochs: int, counted: int | None = None):
        self.settings = settings
        self.frozen: dict[str, Tensor] = {}
        self.specs = {
            "item": TensorSpec((items, settings.dim), "shared", "rows"),
            "user": TensorSpec((settings.dim,), "private"),
        }
        item_lr = settings.item_lr if settings.item_lr is not None else settings.lr * (counted or items)
        both = ("item", "user")
        lr = {"item": item_lr, "user": settings.lr}
        which = settings.objective.which
        self.phases = (Phase("federated", both, both, local_epochs, "sgd", lr, draws=purposes.FEDERATED, which=which),)
        learning(self, settings)

    @property
    def score_form(self) -> Form | None:
        return form_of(self.settings, "item", "user")

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {"item": init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)} | first_of(
            self.settings
        )

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {"user": init_vectors(seed, purposes.INIT_USER, clients, self.settings.dim, self.settings.init_scale)}

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["user"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return inner(user, vectors)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        return worth(scores_of(self, tensors, batch), batch, self.settings, tensors)


def build(settings: FedMFSettings, given: Given) -> FedMF:
    return FedMF(settings, given.items, given.local_epochs, given.counted)
