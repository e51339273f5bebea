"""A release guarantees something: this is the event, as its mechanism's entry of the table reads it.

Noise is counted relative to the sensitivity of the declared adjacency, which is normalised before an `Event` is made:
replace-one (local) moves a clipped update by 2 C, zero-out (central) by C. Libraries disagree about this, so they never
see an adjacency. Owns: events and what is known of each alone. Does not own: their composition (`accounting`), who
released how often (`ledger`).
"""

from dataclasses import dataclass
from typing import Self, cast

from privacy.errors import InputError, unknown
from privacy.mechanism import LARGEST, MECHANISMS, ORDERS, Floats, Mechanism, Norm, law_of
from privacy.settings import NoiseSettings, PrivacySettings

__all__ = ["LARGEST", "MECHANISMS", "ORDERS", "Event", "zcdp_of_gaussian", "zcdp_of_laplace"]


@dataclass(frozen=True, order=True)
class Event:
    """One release of one client to one recipient, as an accountant sees it.

    `multiplier`: noise scale (std of a Gaussian, b of a Laplace, 1 / epsilon of a pure mechanism) over the sensitivity
    in `norm`; 0 where nothing is guaranteed. `steps`: that sensitivity in steps of the grid (discrete Laplace alone).
    `sampling`: rate of Poisson sampling, 1 for none; it may be below 1 only if nobody who attacks sees who takes part.

    >>> Event("gaussian", multiplier=4.0).pure
    inf
    >>> Event("laplace", "l1", 4.0).pure
    0.25
    """

    mechanism: str
    norm: Norm = "l2"
    multiplier: float = 0.0
    steps: int = 0
    sampling: float = 1.0
    recipient: str = "server"

    def __post_init__(self) -> None:
        row = self.row
        if self.norm not in ("l1", "l2"):
            raise unknown("norm", self.norm, ("l1", "l2"))
        if row.guarantees and not 1 / LARGEST <= self.multiplier <= LARGEST:  # false for NaN
            raise InputError(
                f"noise over sensitivity must lie between {1 / LARGEST:g} and {LARGEST:g}, got {self.multiplier:g}"
            )
        if not 0 < self.sampling <= 1:
            raise InputError(f"a sampling rate must be above 0 and at most 1, got {self.sampling}")
        if self.sampling < 1 and not row.sampled:
            raise InputError(
                f"no bound for {self.mechanism} under Poisson sampling is known here: use gaussian with sampler float"
            )
        row.check(self)

    @classmethod
    def of(
        cls,
        settings: PrivacySettings,
        scale: float | None,
        sampling: float = 1.0,
        recipient: str = "server",
    ) -> Self:
        """Make the event of one release under `settings`, with noise of this absolute `scale` (None: no noise).

        >>> Event.of(PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, sigma=4.0), 4.0).multiplier
        2.0
        """
        if settings.law is None or scale is None:
            return cls("none", recipient=recipient)
        law = law_of(settings.law)
        if settings.clip is None:
            return cls(law.without_clip, recipient=recipient)
        multiplier, steps = law.strength(cast(NoiseSettings, settings), scale)
        return cls(settings.law, settings.norm, multiplier, steps, sampling, recipient)

    @property
    def row(self) -> Mechanism:
        """Return the mechanism's entry of the table."""
        return MECHANISMS[self.mechanism]

    @property
    def pure(self) -> float:
        """Return the epsilon with delta 0; inf where there is none."""
        return self.row.pure(self)

    @property
    def curve(self) -> Floats:
        """Return the Renyi divergence at `ORDERS`, not sampled: float64 [orders]; inf where nothing is guaranteed."""
        if self.sampling < 1:
            raise InputError("a Renyi curve under Poisson sampling is the library's: compose it with accounting")
        return self.row.curve(self)


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
