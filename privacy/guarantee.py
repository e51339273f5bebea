"""A release guarantees something: this is the event, as its mechanism's entry of the table reads it.

Noise is counted relative to the sensitivity of the declared adjacency, which is normalised before an `Event` is made:
replace-one (local) moves a clipped update by 2 C, zero-out (central) by C. Libraries disagree about this, so they never
see an adjacency.
"""

from typing import cast

from privacy.mechanism import LARGEST, MECHANISMS, ORDERS, Event, law_of
from privacy.settings import NoiseSettings, PrivacySettings

__all__ = ["LARGEST", "MECHANISMS", "ORDERS", "Event", "event_of", "zcdp_of_gaussian", "zcdp_of_laplace"]


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
    return Event(settings.law, settings.norm, multiplier, steps, sampling, recipient)


def zcdp_of_gaussian(multiplier: float) -> float:
    """Return rho of one vector Gaussian release, whatever its dimension; `multiplier` = sigma / sensitivity_2.

    Bun & Steinke 2016, Prop. 1.6; of the discrete Gaussian for whole shifts Canonne, Kamath & Steinke 2020, Thm. 14.
    """
    return 0.5 / multiplier**2


def zcdp_of_laplace(multiplier: float) -> float:
    """Return rho of one vector Laplace release under an L2 clip, dimension-free; `multiplier` = b / sensitivity_2.

    A coordinate that moves by d_i is (d_i / b)-DP, hence (d_i / b)**2 / 2 zCDP (Bun & Steinke 2016, Prop. 1.4), and the
    coordinates' sum is sensitivity_2**2 / (2 b**2). Discrete Laplace noise is as private per coordinate.
    """
    return 0.5 / multiplier**2
