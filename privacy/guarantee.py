"""What one release by each mechanism guarantees: the one table of mechanisms.

Noise is counted relative to the sensitivity of the declared adjacency, which is normalised before an `Event` is made:
replace-one (local) moves a clipped update by 2 C, zero-out (central) by C. Libraries disagree about this, so they never
see an adjacency. Owns: events and what is known of each alone. Does not own: their composition (`accounting`), who
released how often (`ledger`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError, unknown
from privacy.settings import Norm, PrivacySettings

Floats = npt.NDArray[np.float64]
ORDERS: Floats = 1.0 + np.logspace(-4, 3, 282)
"""Renyi orders; the low ones matter for little noise."""

LARGEST = 1e100
"""Of noise over sensitivity, either way round: beyond it squares leave the range of floats."""


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
        if self.mechanism not in MECHANISMS:
            raise unknown("mechanism", self.mechanism, MECHANISMS)
        if self.norm not in ("l1", "l2"):
            raise unknown("norm", self.norm, ("l1", "l2"))
        if self.row.guarantees and not 1 / LARGEST <= self.multiplier <= LARGEST:  # false for NaN
            raise InputError(
                f"noise over sensitivity must lie between {1 / LARGEST:g} and {LARGEST:g}, got {self.multiplier:g}"
            )
        if not 0 < self.sampling <= 1:
            raise InputError(f"a sampling rate must be above 0 and at most 1, got {self.sampling}")
        if self.sampling < 1 and self.mechanism != "gaussian":
            raise InputError(f"no bound for {self.mechanism} under Poisson sampling is known here: use gaussian")
        if self.steps < (self.mechanism == "discrete-laplace"):
            raise InputError(f"discrete-laplace needs its sensitivity in whole steps of the grid, got {self.steps}")

    @classmethod
    def of(
        cls,
        settings: PrivacySettings,
        scale: float | None,
        dimension: int | None = None,
        sampling: float = 1.0,
        recipient: str = "server",
    ) -> Self:
        """The event of one release under `settings`, with noise of this absolute `scale` (None: no noise).

        `dimension`: how many values are released, which a grid needs to know.

        >>> Event.of(PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, sigma=4.0), 4.0).multiplier
        2.0
        """
        if settings.law is None or scale is None:
            return cls("none", recipient=recipient)
        if settings.clip is None:
            return cls("paper-laplace" if settings.law == "laplace" else "unclipped", recipient=recipient)
        sensitivity = settings.sensitivity_of(dimension)
        steps = 0
        if settings.law == "discrete-laplace":
            assert settings.step is not None
            steps = max(1, math.floor(sensitivity / settings.step))
            if settings.norm == "l1":  # the L1 norm of whole steps is a whole number of steps
                sensitivity = steps * settings.step
        return cls(settings.law, settings.norm, scale / sensitivity, steps, sampling, recipient)

    @property
    def row(self) -> "Mechanism":
        """The mechanism's row of the table."""
        return MECHANISMS[self.mechanism]

    @property
    def pure(self) -> float:
        """The epsilon with delta 0; inf where there is none."""
        return self.row.pure(self)

    @property
    def curve(self) -> Floats:
        """Renyi divergence at `ORDERS`, not sampled: float64 [orders]; inf where nothing is guaranteed."""
        if self.sampling < 1:
            raise InputError("a Renyi curve under Poisson sampling is the library's: compose it with accounting")
        return self.row.curve(self)


@dataclass(frozen=True)
class Mechanism:
    """A row of the table: `curve` and `pure` of an event, and `unknown`, what it cannot say."""

    curve: Callable[[Event], Floats]
    pure: Callable[[Event], float]
    unknown: str
    guarantees: bool = True


def zcdp_of_laplace(multiplier: float) -> float:
    """rho of one vector Laplace release under an L2 clip, dimension-free; `multiplier` = b / sensitivity_2.

    A coordinate that moves by d_i is (d_i / b)-DP, hence (d_i / b)**2 / 2 zCDP (Bun & Steinke 2016, Prop. 1.4), and the
    coordinates' sum is sensitivity_2**2 / (2 b**2). Discrete Laplace noise is as private per coordinate.
    """
    return 0.5 / multiplier**2


def _nothing(event: Event) -> Floats:
    return np.full(len(ORDERS), math.inf)


def _no_pure(event: Event) -> float:
    return math.inf


def _gaussian(event: Event) -> Floats:
    """Mironov 2017, Prop. 7. Rounding the noise of a value on the grid is done after the release, so it is free."""
    return ORDERS * (0.5 / event.multiplier**2)


def _laplace(event: Event) -> Floats:
    """L1: Mironov 2017, Prop. 6. It is convex in the shift and 0 at 0, so one coordinate that moves alone is worst."""
    if event.norm == "l2":
        return ORDERS * zcdp_of_laplace(event.multiplier)
    shift, twice = 1.0 / event.multiplier, 2.0 * ORDERS - 1.0
    first = np.log(ORDERS / twice) + (ORDERS - 1.0) * shift
    return np.logaddexp(first, np.log((ORDERS - 1.0) / twice) - ORDERS * shift) / (ORDERS - 1.0)


def _discrete_laplace(event: Event) -> Floats:
    """The sum over the grid in closed form, for a shift of `steps` steps; convex in the shift like the other.

    With q = exp(-step / b) and r = q ** (2 a - 1), the sum of p(k) ** a p(k - m) ** (1 - a) over all k is
    u q ** ((1 - a) m) + v q ** (a m), where u = (1 / (1 - q) + r / (1 - r)) w, v = (1 / (1 - q) - 1 / (1 - r)) w and
    w = (1 - q) / (1 + q); u and v are positive and add up to 1.
    """
    if event.norm == "l2":
        return ORDERS * zcdp_of_laplace(event.multiplier)
    rate = 1.0 / (event.multiplier * event.steps)  # step / b
    q, shift = math.exp(-rate), 1.0 / event.multiplier
    r = np.exp(-rate * (2.0 * ORDERS - 1.0))
    one_less_q, one_less_r = -math.expm1(-rate), -np.expm1(-rate * (2.0 * ORDERS - 1.0))
    first = (1.0 + one_less_q * r / one_less_r) / (1.0 + q)
    second = np.maximum((1.0 - one_less_q / one_less_r) / (1.0 + q), np.finfo(np.float64).tiny)
    log_sum = np.logaddexp(np.log(first) + (ORDERS - 1.0) * shift, np.log(second) - ORDERS * shift)
    return np.maximum(log_sum, 0.0) / (ORDERS - 1.0)


def _pure(event: Event) -> Floats:
    """Randomised response is the worst of all mechanisms with a pure epsilon (Kairouz, Oh & Viswanath 2015)."""
    epsilon = 1.0 / event.multiplier
    kept = -math.log1p(math.exp(-epsilon))  # log of the probability of the truth
    log_sum = np.logaddexp(kept + (ORDERS - 1.0) * epsilon, kept - ORDERS * epsilon)
    return np.maximum(log_sum, 0.0) / (ORDERS - 1.0)


def _pure_of_l1(event: Event) -> float:
    return 1.0 / event.multiplier if event.norm == "l1" else math.inf


MECHANISMS: dict[str, Mechanism] = {
    "none": Mechanism(_nothing, _no_pure, "everything: the update leaves in the clear", guarantees=False),
    "unclipped": Mechanism(_nothing, _no_pure, "everything: without a clip the noise bounds nothing", guarantees=False),
    "paper-laplace": Mechanism(
        _nothing, _no_pure, "everything: without a clip the noise bounds nothing", guarantees=False
    ),
    "laplace": Mechanism(_laplace, _pure_of_l1, "under an L2 clip a pure epsilon, which grows with the dimension"),
    "discrete-laplace": Mechanism(
        _discrete_laplace, _pure_of_l1, "under an L2 clip a pure epsilon; its exact privacy loss distribution"
    ),
    "gaussian": Mechanism(_gaussian, _no_pure, "a pure epsilon: there is none"),
    "pure": Mechanism(_pure, lambda event: 1.0 / event.multiplier, "all but its pure epsilon"),
}
