"""Central MF learns from everybody's interactions in one place, in mini-batches."""

from __future__ import annotations

from cloud.references.factors import Factors
from cloud.references.pooled import Pooled
from edgefr.experiment import Experiment
from edgefr.methods.central import CentralProgram, batches, pooled
from edgefr.methods.given import Given
from edgefr.methods.mf.settings import MFSettings, PMFSettings
from edgefr.prepare import Prepared


def mf_program(settings: PMFSettings, given: Given) -> CentralProgram:
    """Return what scores: inner products."""
    return CentralProgram("mf", given.items, settings.dim)


def mf_learner(settings: MFSettings, experiment: Experiment, prepared: Prepared) -> Factors:
    """Return what learns from the experiment's training interactions."""
    return factors(settings, settings.loss, experiment, pooled(experiment, prepared))


def pmf_learner(settings: PMFSettings, experiment: Experiment, prepared: Prepared) -> Factors:
    """Return what learns from them by squared error."""
    return factors(settings, "squared", experiment, pooled(experiment, prepared))


def factors(settings: PMFSettings, loss: str, experiment: Experiment, found: Pooled) -> Factors:
    """Return what learns vectors from some interactions."""
    return Factors(found, loss, settings.dim, settings.init_scale, batches(settings, experiment))
