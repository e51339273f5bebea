"""FCUCR's clients send a prototype beside their updates, in the rounds in which these are transferred."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.methods.fcucr.settings import FCUCRSettings
from privacy.prototypes import Prototypes

if TYPE_CHECKING:
    from edgefr.experiment.method import Context


def messages(settings: FCUCRSettings, context: Context) -> Prototypes | None:
    """Return prototypes by these settings; None where none are sent."""
    if settings.prototypes == "none":
        return None
    transfers = -(-context.rounds // context.interval)
    queried = settings.prototypes == "trained" and settings.query == "next"
    return Prototypes(settings.reply, transfers, settings.asks_when_recommending, queried, settings.receiver_noise)
