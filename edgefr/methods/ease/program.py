"""EASE^R is learned from everybody's interactions in one place, by one equation."""

from __future__ import annotations

from cloud.references.ease import Ease
from edgefr.experiment import Experiment
from edgefr.methods.central import CentralProgram, pooled
from edgefr.methods.ease.settings import EaseSettings
from edgefr.methods.given import Given
from edgefr.prepare import Prepared


def ease_program(settings: EaseSettings, given: Given) -> CentralProgram:
    """Return what scores: a user's vector is 1 at the items it has, an item's the weights of all others for it."""
    return CentralProgram("ease", given.items, given.items)


def ease_learner(settings: EaseSettings, experiment: Experiment, prepared: Prepared) -> Ease:
    """Return what solves for the experiment's training interactions."""
    return Ease(pooled(experiment, prepared), settings.ridge)
