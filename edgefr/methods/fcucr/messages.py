"""FCUCR's clients send a prototype beside their updates, in the rounds in which these are transferred."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.methods.fcucr.settings import FCUCRSettings
from privacy.prototypes import Prototypes

if TYPE_CHECKING:
    from edgefr.experiment.experiment import Experiment


def messages(settings: FCUCRSettings, experiment: Experiment) -> Prototypes | None:
    """Return prototypes by these settings; None where none are sent."""
    if settings.prototypes == "none":
        return None
    transfers = -(-experiment.rounds // experiment.knowledge.interval)
    queried = settings.prototypes == "trained" and settings.query == "next"
    return Prototypes(settings.reply, transfers, settings.asks_when_recommending, queried, settings.receiver_noise)
