"""EMCDR learns vectors in each of two domains, and how users' vectors of one become those of the other."""

from __future__ import annotations

import numpy as np

from cloud.references.emcdr import EMCDR, AfterSource, Fit
from cloud.references.factors import Factors
from cloud.references.folds import Folds, drawn_folds
from cloud.references.pooled import Pooled
from edgefr.experiment import Experiment
from edgefr.methods.central import CentralProgram, Turn, pooled, pooled_target
from edgefr.methods.emcdr.settings import EMCDRSettings
from edgefr.methods.given import Given
from edgefr.methods.mf.program import factors
from edgefr.prepare import Prepared


def emcdr_program(settings: EMCDRSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products, of the source's model and of one of the target per fold."""
    return CentralProgram("emcdr", given.items, (1 + settings.folds) * settings.dim)


def emcdr_learner(settings: EMCDRSettings, experiment: Experiment, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: the source's model, the target's for each fold of cold users with mappings, the target's whole.

    A mapping, and the model it maps to, never meet what its fold's users have in the target. Who has items there and
    tells the last model of them needs no mapping.
    """
    s, (source, target) = settings, prepared.splits.values()
    users = len(prepared.dataset.users)
    fold, width = drawn_folds(experiment.seed, users, s.folds), (1 + s.folds) * s.dim

    def of(found: Pooled) -> Factors:
        return factors(s, s.loss, experiment, found)

    whole = np.zeros_like(fold)
    both = (source.train.counts > 0) & (target.train.counts > 0)
    apart = [of(pooled_target(experiment, prepared, fold == number)) for number in range(s.folds)]
    how = Fit(s.ridge, s.hidden, s.mapping_steps, s.mapping_lr, experiment.seed)
    return (
        Turn(Folds([of(pooled(experiment, prepared))], whole, width), source),
        Turn(EMCDR(apart, fold, width, both, s.mapping, how), target),
        Turn(AfterSource([of(pooled_target(experiment, prepared))], whole, width), target, model=1),
    )
