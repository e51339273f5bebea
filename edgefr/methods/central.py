"""A central reference has scores but no clients: what its programs have in common, and how its learner is made."""

from __future__ import annotations

from torch import Tensor

from cloud.references.pooled import Pooled
from edgefr.experiment import Experiment
from edgefr.prepare import Prepared
from export.batches import Batch, inner
from export.program import LocalProgram, Phase, Tensors, TensorSpec


class CentralProgram(LocalProgram):
    """This scores by the inner product of a user's vector and an item's; nobody trains it on a device.

    Its tensors are made by the learner (`cloud.references`).
    """

    pointwise = True
    needs_history = False
    phases: tuple[Phase, ...] = ()

    def __init__(self, name: str, items: int, width: int):
        self.name = name
        self.frozen: dict[str, Tensor] = {}
        self.specs = {"item": TensorSpec((items, width), "shared", "rows"), "user": TensorSpec((width,), "private")}

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {}

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["user"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return inner(user, vectors)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        raise TypeError(f"{self.name} is a central reference: no client trains it")


def pooled(experiment: Experiment, prepared: Prepared) -> Pooled:
    """Return everybody's training interactions of the split that is learned from; held-out items are not among them."""
    task, users = prepared.train_split, len(prepared.dataset.users)
    user, item = task.train.rows.astype("int64"), task.train.values.astype("int64")
    items = len(prepared.dataset.catalogue)
    return Pooled(user, item, users, items, task.pool.astype("int64"), experiment.seed)
