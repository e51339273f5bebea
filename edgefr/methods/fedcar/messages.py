"""FedCAR's clients send beside their updates what another client contrasts itself with, in every round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.config.validation import fault
from edgefr.methods.fedcar.parts import NEGATIVES
from edgefr.methods.fedcar.settings import FedCARSettings, form_of
from privacy.prototypes import RELAYED, Prototypes

if TYPE_CHECKING:
    from edgefr.experiment.method import Context

AT = ("privacy", "tensors")


def check(context: Context) -> None:
    """Refuse, by `fault`, a contrast whose encoder no round trains: nobody would read its messages."""
    some = context.privacy.tensors
    if context.model["negative"] != "none" and some is not None and not any(map(_of_encoder, some)):
        raise fault("the contrast trains the encoder, and none of it is here: add some, or model.negative=none", *AT)


def _of_encoder(name: str) -> bool:
    return name.startswith("encoder.")


def messages(settings: FedCARSettings, context: Context) -> Prototypes | None:
    """Return messages by these settings; None where nothing is contrasted."""
    if settings.negative == "none":
        return None
    return Prototypes(
        NEGATIVES[settings.negative].values(form_of(settings)),
        context.total_rounds,
        nominal=settings.negative_noise,
        what="message for another's contrast",
        through="relay",
        off="model.negative=none",
        recipients=RELAYED,
    )
