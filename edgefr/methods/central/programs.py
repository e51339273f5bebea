"""EMCDR learns vectors in each of two domains, and how users' vectors of one become those of the other."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from cloud.references.ease import Ease
from cloud.references.factors import CMF, Factors, Joint
from cloud.references.folds import EMCDR, AfterSource, Fit, Folds, drawn_folds
from cloud.references.neumf import NeuMF, forward, layers
from cloud.references.pooling import Pooled
from edgefr.data.prepared_data import Prepared
from edgefr.methods.central.references import CentralProgram, Draws, Turn, batches, pooled, pooled_target
from edgefr.methods.central.settings import (
    CMFSettings,
    EaseSettings,
    EMCDRSettings,
    MFSettings,
    NeuMFSettings,
    PMFSettings,
)
from export.batches import Batch
from export.given import Given
from export.program import Tensors, TensorSpec


def cmf_program(settings: CMFSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products, of a model per fold."""
    return CentralProgram("cmf", given.items, settings.folds * settings.dim)


def cmf_learner(settings: CMFSettings, draws: Draws, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: a model for each fold of cold users, then one that knows what everybody has in the target."""
    source, target = prepared.splits.values()
    fold = drawn_folds(draws.seed, len(prepared.dataset.users), settings.folds)

    def of(left_out: np.ndarray | None) -> CMF:
        joint = Joint.of(pooled(draws, prepared), pooled_target(draws, prepared, left_out))
        s = settings
        return CMF(joint, s.loss, s.dim, s.init_scale, batches(s, draws), s.source_weight)

    width = settings.folds * settings.dim
    cold = Folds([of(fold == number) for number in range(settings.folds)], fold, width)
    warm = Folds([of(None)], np.zeros_like(fold), width)
    return Turn(cold, target, also=(source,)), Turn(warm, target, also=(source,), model=1)


def ease_program(settings: EaseSettings, given: Given) -> CentralProgram:
    """Return what scores: a user's vector is 1 at the items it has, an item's the weights of all others for it."""
    return CentralProgram("ease", given.items, given.items)


def ease_learner(settings: EaseSettings, draws: Draws, prepared: Prepared) -> Ease:
    return Ease(pooled(draws, prepared), settings.ridge)


def mf_program(settings: PMFSettings, given: Given) -> CentralProgram:
    return CentralProgram("mf", given.items, settings.dim)


pmf_program = mf_program


def mf_learner(settings: MFSettings, draws: Draws, prepared: Prepared) -> Factors:
    return factors(settings, settings.loss, draws, pooled(draws, prepared))


def pmf_learner(settings: PMFSettings, draws: Draws, prepared: Prepared) -> Factors:
    return factors(settings, "squared", draws, pooled(draws, prepared))


def factors(settings: PMFSettings, loss: str, draws: Draws, found: Pooled) -> Factors:
    return Factors(found, loss, settings.dim, settings.init_scale, batches(settings, draws))


class NeuMFScores(CentralProgram):
    """This scores as NeuMF does: vectors of GMF and of the MLP lie side by side."""

    pointwise = False

    def __init__(self, settings: NeuMFSettings, items: int):
        super().__init__("neumf", items, settings.dim + settings.tower[0] // 2)
        self.dim = settings.dim
        self.dense = layers(settings.tower, settings.dim)
        self.specs = {**self.specs, **{name: TensorSpec(shape, "shared") for name, shape in self.dense.items()}}

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return forward({name: tensors[name] for name in self.dense}, user, vectors, self.dim)


def neumf_program(settings: NeuMFSettings, given: Given) -> NeuMFScores:
    return NeuMFScores(settings, given.items)


def neumf_learner(settings: NeuMFSettings, draws: Draws, prepared: Prepared) -> NeuMF:
    s, data = settings, pooled(draws, prepared)
    return NeuMF(data, s.dim, s.tower, s.init_scale, batches(s, draws))


def emcdr_program(settings: EMCDRSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products, of the source's model and of one of the target per fold."""
    return CentralProgram("emcdr", given.items, (1 + settings.folds) * settings.dim)


def emcdr_learner(settings: EMCDRSettings, draws: Draws, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: the source's model, the target's for each fold of cold users, the target's for all users.

    Mappings and the models they map to never see what the fold's users have in the target. The last model needs no
    mapping.
    """
    s, (source, target) = settings, prepared.splits.values()
    users = len(prepared.dataset.users)
    fold, width = drawn_folds(draws.seed, users, s.folds), (1 + s.folds) * s.dim

    def of(found: Pooled) -> Factors:
        return factors(s, s.loss, draws, found)

    whole = np.zeros_like(fold)
    both = (source.train.counts > 0) & (target.train.counts > 0)
    apart = [of(pooled_target(draws, prepared, fold == number)) for number in range(s.folds)]
    how = Fit(s.ridge, s.hidden, s.mapping_steps, s.mapping_lr, draws.seed)
    return (
        Turn(Folds([of(pooled(draws, prepared))], whole, width), source),
        Turn(EMCDR(apart, fold, width, both, s.mapping, how), target),
        Turn(AfterSource([of(pooled_target(draws, prepared))], whole, width), target, model=1),
    )
