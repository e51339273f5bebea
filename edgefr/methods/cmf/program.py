"""CMF learns from everybody's interactions in two domains at once, without a cold user's in the second."""

from __future__ import annotations

import numpy as np

from cloud.references.cmf import CMF, Joint
from cloud.references.folds import Folds, drawn_folds
from edgefr.experiment import Experiment
from edgefr.methods.central import CentralProgram, Turn, batches, pooled, pooled_target
from edgefr.methods.cmf.settings import CMFSettings
from edgefr.methods.given import Given
from edgefr.prepare import Prepared


def cmf_program(settings: CMFSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products, of a model per fold."""
    return CentralProgram("cmf", given.items, settings.folds * settings.dim)


def cmf_learner(settings: CMFSettings, experiment: Experiment, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: a model for each fold of cold users, then one that knows what everybody has in the target."""
    source, target = prepared.splits.values()
    fold = drawn_folds(experiment.seed, len(prepared.dataset.users), settings.folds)

    def of(left_out: np.ndarray | None) -> CMF:
        joint = Joint.of(pooled(experiment, prepared), pooled_target(experiment, prepared, left_out))
        s = settings
        return CMF(joint, s.loss, s.dim, s.init_scale, batches(s, experiment), s.source_weight)

    width = settings.folds * settings.dim
    cold = Folds([of(fold == number) for number in range(settings.folds)], fold, width)
    warm = Folds([of(None)], np.zeros_like(fold), width)
    return Turn(cold, target, also=(source,)), Turn(warm, target, also=(source,), model=1)
