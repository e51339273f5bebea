"""Messages beside updates, such as prototypes, are a second release, clipped and noised on the device.

The server looks at single messages, so no sum hides one: each brings its device's own noise along. Clip and noise are
in the proportion of the update's, so a prototype costs what an update does (on a grid, but for whole steps). What the
server makes of prototypes, and what other clients are told of that, is post-processing and costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privacy.clip import clip_factors, joint_norms
from privacy.grid import to_grid
from privacy.guarantee import Event, event_of
from privacy.mechanism import Noise, Norm
from privacy.noise_key import NoiseBase
from privacy.settings import PrivacySettings

RECIPIENTS = "server, other clients (through fused answers)"
"""Who learns from a prototype: the server what was sent, other clients what answers are made of."""

RELAYED = "server, one other client"
"""Who learns from a message that the server relays."""

IN_THE_CLEAR = Event("none", recipient=RECIPIENTS)


@dataclass(frozen=True)
class Prototypes:
    """Each client sends one prototype of `values` numbers in `rounds` of a run's rounds.

    `asked`: one more leaves for every recommendation, which nobody counts; `queried`: one more beside each, to be
    answered (FCUCR as released). `received_noise`: standard deviation of the noise that devices add to what they
    receive. `nominal`: scale of the Laplace noise that the method itself adds to what leaves, which bounds nothing.
    `what` it is called, what it goes `through` to the `recipients` who learn from it, and the setting that turns it
    `off`. `clip` in `norm` and `noise` are those of `under`; until then, and where nothing is clipped, prototypes
    leave as they are and guarantee nothing.

    >>> settings = PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, prototype_clip=0.5, sigma=4.0)
    >>> sent = Prototypes(values=50, rounds=10).under(settings, 4.0)
    >>> sent.noise.scale, sent.event.multiplier, sent.release[1]
    (2.0, 2.0, 10)
    """

    values: int
    rounds: int
    asked: bool = False
    queried: bool = False
    received_noise: float = 0.0
    nominal: float = 0.0
    what: str = "prototype"
    through: Literal["knowledge", "relay"] = "knowledge"
    off: str = "model.prototypes=none"
    recipients: str = RECIPIENTS
    clip: float | None = None
    norm: Norm = "l2"
    noise: Noise | None = None
    event: Event = IN_THE_CLEAR

    def __post_init__(self) -> None:
        if self.event is IN_THE_CLEAR:
            object.__setattr__(self, "event", replace(IN_THE_CLEAR, recipient=self.recipients))

    def under(self, settings: PrivacySettings, scale: float | None) -> Prototypes:
        """The same beside updates with noise of this absolute `scale` (None: none). Without a clip there is no noise.

        FCUCR's own noise (D.2) is one on parameters: unclipped noise on prototypes would guarantee nothing either.
        """
        if settings.clip is None:
            return self
        clip = settings.clip if settings.prototype_clip is None else settings.prototype_clip
        own = settings.model_copy(update={"clip": clip})
        noise = own.noise(None if scale is None else scale * (clip / settings.clip))
        event = event_of(own, noise.scale if noise else None, recipient=self.recipients)
        return replace(self, clip=clip, norm=settings.norm, noise=noise, event=event)

    @property
    def release(self) -> tuple[Event, int]:
        """Return what a client in every round releases: the event, and how often."""
        return self.event, self.rounds

    @property
    def travels(self) -> tuple[int, int]:
        """Return how many numbers a client sends in a round with messages, and how many come back."""
        return self.values * (2 if self.queried else 1), self.values

    def leaving(self, vectors: npt.ArrayLike, base: NoiseBase, clients: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return what leaves the devices of `clients` [C] of `vectors` [C, values]: float64, clipped, then noised.

        `base`: the round's key. A vector that is not finite is zeros; a client's noise is its own, whoever else is
        in the call.
        """
        values = np.asarray(vectors, dtype=np.float64)
        if self.clip is None:
            return values
        factors = clip_factors(joint_norms([values], self.norm), self.clip)[:, None]
        values = np.where(factors > 0, values, 0.0) * factors
        if self.noise is None:
            return values
        values = values if self.noise.step is None else to_grid(values, self.noise.step)
        return values + self.noise.of_clients(base, clients, values.shape[1])

    @property
    def words(self) -> str:
        """Say what is sent, for a report."""
        how = "as it is" if self.clip is None else "clipped" if self.noise is None else "clipped and noised"
        how += f" and noise of its own, Laplace {self.nominal:g}" if self.nominal else ""
        more = ", one more of the next session beside it" * self.queried
        whole = f"a {self.what} of {self.values} values {how}{more}"
        return whole + ", one more for every recommendation" * self.asked

    def record(self) -> dict[str, Any]:
        """Return this for JSON: `scale` and `std` are of the noise on every value of every prototype."""
        return {
            "values": self.values,
            "rounds": self.rounds,
            "asked_when_recommending": self.asked,
            "clip": self.clip,
            "mechanism": "none" if self.noise is None else self.noise.kind,
            "scale": None if self.noise is None else self.noise.scale,
            "std": 0.0 if self.noise is None else self.noise.std,
            "received_noise": self.received_noise,
            **({"nominal_noise": self.nominal} if self.nominal else {}),
        }
