"""A central reference has scores but no clients: these are its programs, and how its learner is made of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from pydantic import BaseModel
from torch import Tensor

from cloud.references.ease import Ease
from cloud.references.factors import CMF, Factors, TwoDomains
from cloud.references.folds import EMCDR, AfterSource, Folds, MappingFit, drawn_folds
from cloud.references.neumf import NeuMF, forward, layers
from cloud.references.pooling import Pooled
from cloud.references.reference import Batches, Reference
from edgefr.config.validation import fault
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.leave_one_out import CrossDomain
from edgefr.data.splits.split import Split
from edgefr.experiment.method import Context, Method, found_at
from edgefr.methods.central import settings as of
from export.batches import Batch, inner
from export.given import Given
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


def batches(settings: of.PMFSettings | of.NeuMFSettings, draws: Draws) -> Batches:
    s = settings
    return Batches(s.epochs, s.patience, draws.batch_size, draws.negatives, s.lr, s.l2)


def pooled(draws: Draws, prepared: Prepared) -> Pooled:
    """Return everybody's training interactions of the split that is learned from; held-out items are not among them."""
    task, users = prepared.train_split, len(prepared.dataset.users)
    user, item = task.train.rows.astype("int64"), task.train.values.astype("int64")
    items = len(prepared.dataset.catalogue)
    return Pooled(user, item, users, items, task.drawn.astype("int64"), draws.seed)


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


def cmf_program(settings: of.CMFSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products, of a model per fold."""
    return CentralProgram("cmf", given.items, settings.folds * settings.dim)


def cmf_learner(settings: of.CMFSettings, draws: Draws, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: a model for each fold of cold users, then one that knows what everybody has in the target."""
    source, target = prepared.splits.values()
    fold = drawn_folds(draws.seed, len(prepared.dataset.users), settings.folds)

    def model(left_out: np.ndarray | None) -> CMF:
        joint = TwoDomains.of(pooled(draws, prepared), pooled_target(draws, prepared, left_out))
        s = settings
        return CMF(joint, s.loss, s.dim, s.init_scale, batches(s, draws), s.source_weight)

    width = settings.folds * settings.dim
    cold = Folds([model(fold == number) for number in range(settings.folds)], fold, width)
    warm = Folds([model(None)], np.zeros_like(fold), width)
    return Turn(cold, target, also=(source,)), Turn(warm, target, also=(source,), model=1)


def ease_program(settings: of.EaseSettings, given: Given) -> CentralProgram:
    """Return what scores: a user's vector is 1 at the items it has, an item's the weights of all others for it."""
    return CentralProgram("ease", given.items, given.items)


def ease_learner(settings: of.EaseSettings, draws: Draws, prepared: Prepared) -> Ease:
    return Ease(pooled(draws, prepared), settings.ridge)


def mf_program(settings: of.PMFSettings, given: Given) -> CentralProgram:
    return CentralProgram("mf", given.items, settings.dim)


pmf_program = mf_program


def mf_learner(settings: of.MFSettings, draws: Draws, prepared: Prepared) -> Factors:
    return factors(settings, settings.loss, draws, pooled(draws, prepared))


def pmf_learner(settings: of.PMFSettings, draws: Draws, prepared: Prepared) -> Factors:
    return factors(settings, "squared", draws, pooled(draws, prepared))


def factors(settings: of.PMFSettings, loss: str, draws: Draws, found: Pooled) -> Factors:
    return Factors(found, loss, settings.dim, settings.init_scale, batches(settings, draws))


class NeuMFScores(CentralProgram):
    """This scores as NeuMF does: vectors of GMF and of the MLP lie side by side."""

    pointwise = False

    def __init__(self, settings: of.NeuMFSettings, items: int):
        super().__init__("neumf", items, settings.dim + settings.tower[0] // 2)
        self.dim = settings.dim
        self.dense = layers(settings.tower, settings.dim)
        self.specs = {**self.specs, **{name: TensorSpec(shape, "shared") for name, shape in self.dense.items()}}

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return forward({name: tensors[name] for name in self.dense}, user, vectors, self.dim)


def neumf_program(settings: of.NeuMFSettings, given: Given) -> NeuMFScores:
    return NeuMFScores(settings, given.items)


def neumf_learner(settings: of.NeuMFSettings, draws: Draws, prepared: Prepared) -> NeuMF:
    s, data = settings, pooled(draws, prepared)
    return NeuMF(data, s.dim, s.tower, s.init_scale, batches(s, draws))


def emcdr_program(settings: of.EMCDRSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products, of the source's model and of one of the target per fold."""
    return CentralProgram("emcdr", given.items, (1 + settings.folds) * settings.dim)


def emcdr_learner(settings: of.EMCDRSettings, draws: Draws, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: the source's model, the target's for each fold of cold users, the target's for all users.

    Mappings and the models they map to never see what the fold's users have in the target. The last model needs no
    mapping.
    """
    s, (source, target) = settings, prepared.splits.values()
    users = len(prepared.dataset.users)
    fold, width = drawn_folds(draws.seed, users, s.folds), (1 + s.folds) * s.dim

    def model(found: Pooled) -> Factors:
        return factors(s, s.loss, draws, found)

    whole = np.zeros_like(fold)
    both = (source.train.counts > 0) & (target.train.counts > 0)
    apart = [model(pooled_target(draws, prepared, fold == number)) for number in range(s.folds)]
    how = MappingFit(s.ridge, s.hidden, s.mapping_steps, s.mapping_lr, draws.seed)
    return (
        Turn(Folds([model(pooled(draws, prepared))], whole, width), source),
        Turn(EMCDR(apart, fold, width, both, s.mapping, how), target),
        Turn(AfterSource([model(pooled_target(draws, prepared))], whole, width), target, model=1),
    )
