"""Central MF learns from everybody's interactions in one place, in mini-batches."""

from __future__ import annotations

from cloud.references.factors import Factors
from cloud.references.reference import Batches
from edgefr.experiment import Experiment
from edgefr.methods.central import CentralProgram, pooled
from edgefr.methods.given import Given
from edgefr.methods.mf.settings import MFSettings
from edgefr.prepare import Prepared


def build(settings: MFSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products."""
    return CentralProgram("mf", given.items, settings.dim)


def learner(settings: MFSettings, experiment: Experiment, prepared: Prepared) -> Factors:
    """Return what learns from the experiment's training interactions."""
    e, s = experiment, settings
    how = Batches(s.epochs, s.patience, e.batch_size, e.negatives, s.lr, s.l2)
    return Factors(pooled(e, prepared), s.loss, s.dim, s.init_scale, how)
