"""A central reference has scores but no clients: what its programs have in common, and how its learner is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from pydantic import BaseModel
from torch import Tensor

from cloud.references.pooling import Pooled
from cloud.references.reference import Batches, Reference
from edgefr.config.validation import fault
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.leave_one_out import CrossDomain
from edgefr.data.splits.split import Split
from edgefr.experiment.method import Context, Method, found_at
from edgefr.methods.central.settings import NeuMFSettings, PMFSettings
from export.batches import Batch, inner
from export.program import LocalProgram, Phase, Tensors, TensorSpec


class CentralProgram(LocalProgram):
    """This scores by inner products of vectors that the learner makes (`cloud.references`); no device trains it."""

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


@dataclass(frozen=True)
class Turn:
    """A turn is one learner of a reference and the tests of its model.

    Validation items of `over` choose the best epoch; the model is tested there and on the splits of `also`. Items in
    `unseen` are scored alike. `model`: index of the model in `Method.stages`, 0 or 1.
    """

    learner: Reference
    over: Split
    also: tuple[Split, ...] = ()
    unseen: tuple[Split, ...] = ()
    model: int = 0


@dataclass(frozen=True)
class Draws:
    """This says how a central reference draws: its seed, the examples of a batch, and negatives of a positive."""

    seed: int
    batch_size: int
    negatives: int


def turns(row: Method, settings: BaseModel, draws: Draws, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns of a central reference; one that learns in one domain has a single turn."""
    assert row.central is not None
    made = found_at(row.central.learner)(settings, draws, prepared)
    if not isinstance(made, Reference):
        return cast("tuple[Turn, ...]", made)
    first, *others = prepared.splits.values()
    return (Turn(made, first, unseen=tuple(others)),)


def across(context: Context) -> None:
    """Refuse, by `edgefr.config.validation.fault`, a reference that learns from two domains where there are not two."""
    if not isinstance(context.protocol, CrossDomain):
        raise fault(f"{context.name} learns from two domains: set protocol.name=cross-domain", "protocol")
    if len(context.protocol.targets) > 1:
        raise fault(f"{context.name} learns from two domains: name one target", "protocol.target")


def batches(settings: PMFSettings | NeuMFSettings, draws: Draws) -> Batches:
    s = settings
    return Batches(s.epochs, s.patience, draws.batch_size, draws.negatives, s.lr, s.l2)


def pooled(draws: Draws, prepared: Prepared) -> Pooled:
    """Return everybody's training interactions of the split that is learned from; held-out items are not among them."""
    task, users = prepared.train_split, len(prepared.dataset.users)
    user, item = task.train.rows.astype("int64"), task.train.values.astype("int64")
    items = len(prepared.dataset.catalogue)
    return Pooled(user, item, users, items, task.pool.astype("int64"), draws.seed)


def pooled_target(draws: Draws, prepared: Prepared, left_out: np.ndarray | None = None) -> Pooled:
    """Return the target's training interactions without those of users `left_out`, bool [users].

    Users who are in the target alone are not tested, so all of their interactions train.
    """
    data, split, items = prepared.dataset, prepared.splits["target"], len(prepared.dataset.catalogue)
    users = len(data.users)
    alone = np.ones(users, bool)
    alone[data.user[np.isin(data.item, prepared.train_split.pool)]] = False
    rows = alone[data.user] & np.isin(data.item, split.pool)
    user = np.concatenate([split.train.rows, data.user[rows]]).astype("int64")
    item = np.concatenate([split.train.values, data.item[rows]]).astype("int64")
    user, item = np.divmod(np.unique(user * items + item), items)
    if left_out is not None:
        user, item = user[~left_out[user]], item[~left_out[user]]
    return Pooled(user, item, users, items, split.pool.astype("int64"), draws.seed, "target")
