"""FedMF is the local program of federated matrix factorisation."""

from __future__ import annotations

from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.item_table import ItemTable
from edgefr.methods.losses import form_of, init_vectors
from export.batches import Batch, inner
from export.program import ScoreForm, Tensors, TensorSpec


class FedMF(ItemTable):
    """FedMF scores by <p_u, q_i>; p_u [dim] stays on the device, the item table [items, dim] is shared.

    >>> program = FedMF(FedMFSettings(dim=4), items=10, local_epochs=1)
    >>> sorted(program.specs)
    ['item', 'user']
    """

    name = "fedmf"
    settings: FedMFSettings

    def own(self) -> dict[str, TensorSpec]:
        return {"user": TensorSpec((self.settings.dim,), "private")}

    def rates(self, items: int) -> dict[str, float]:
        return {"item": self.settings.item_lr or self.settings.lr * items, "user": self.settings.lr}

    @property
    def score_form(self) -> ScoreForm | None:
        return form_of(self.settings, "item", "user")

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {"user": init_vectors(seed, purposes.INIT_USER, clients, self.settings.dim, self.settings.init_scale)}

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["user"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return inner(user, vectors)
