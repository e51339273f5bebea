"""A release guarantees something: this is the event, as its mechanism's entry of the table reads it.

Noise is counted relative to the sensitivity of the declared adjacency, which is normalised before an `Event` is made:
replace-one (local) moves a clipped update by 2 C, zero-out (central) by C. Libraries disagree about this, so they never
see an adjacency.
"""

from typing import cast

from privacy.mechanism import LARGEST, MECHANISMS, ORDERS, Event, law_of
from privacy.settings import NoiseSettings, PrivacySettings

__all__ = ["LARGEST", "MECHANISMS", "ORDERS", "Event", "event_of"]


def event_of(settings: PrivacySettings, scale: float | None, sampling: float = 1.0, recipient: str = "server") -> Event:
    """Make the event of one release under `settings`, with noise of this absolute `scale` (None: no noise).

    >>> event_of(PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, sigma=4.0), 4.0).multiplier
    2.0
    """
    if settings.law is None or scale is None:
        return Event("none", recipient=recipient)
    law = law_of(settings.law)
    if settings.clip is None:
        return Event(law.without_clip, recipient=recipient)
    step = cast(NoiseSettings, settings).step
    multiplier, steps = law.strength(scale, settings.sensitivity, settings.norm, step)
    return Event(settings.law, settings.norm, multiplier / settings.stretch, steps, sampling, recipient)
