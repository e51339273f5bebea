"""Gaussian noise: in floating point, and on a grid as discrete Gaussian noise of whole steps. Its scale is sigma."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from privacy import exact, keyed
from privacy.correlated_noise import FINENESS, MOST_BAND, reach
from privacy.errors import InputError
from privacy.grid import step_for
from privacy.guarantee import Event
from privacy.mechanism import ORDERS, Additive, Floats, Ints, Noise, Norm, Simulated, Tail
from privacy.settings import TOLD, NoiseSettings
from privacy.trust import TRUSTS


class GaussianNoiseSettings(NoiseSettings):
    """Gaussian noise, continuous or on a grid, can be correlated over rounds (`privacy.correlated`).

    >>> settings = GaussianSettings(clip=2.0, sigma=4.0, apart=5, correlated=True)
    >>> settings.band, round(settings.stretch, 3)
    (5, 1.501)
    """

    correlated: bool = Field(
        False,
        description="each round's noise takes back part of that of the apart - 1 rounds before, so that the model has "
        "less of it at the same epsilon (DP-FTRL); central trust, and apart of 2 or more",
    )

    clip_quantile: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="the clip follows the updates: each round it is moved toward the length that this share of them do "
        "not exceed, told with noise; privacy.clip is where it starts, and it never exceeds that",
    )

    @model_validator(mode="after")
    def _can_follow(self) -> Self:
        if self.clip_quantile is not None:
            if self.clip is None:
                raise ValueError("a clip that follows the updates needs its largest: set clip")
            if TRUSTS[self.trust].sees_uploads:
                raise ValueError("a clip follows what sums tell: set trust to central")
            if self.correlated:
                raise ValueError("rounds that take back each other's noise need one clip: drop clip_quantile")
        return self

    @model_validator(mode="after")
    def _can_be_correlated(self) -> Self:
        if self.correlated:
            if not 2 <= self.apart <= MOST_BAND:
                raise ValueError(
                    f"correlated noise needs clients that come once in any 2 to {MOST_BAND} rounds: set apart"
                )
            if TRUSTS[self.trust].sees_uploads:
                raise ValueError("correlated noise is a server's, on sums: set trust to central")
            if self.project is not None:
                raise ValueError("correlated noise needs the same values in every round: drop project")
        return self

    @property
    def band(self) -> int:
        return self.apart if self.correlated else 1

    @property
    def step(self) -> float | None:
        if self.band > 1 and self.on_grid and self.clip is not None and self.grid_exponent is None:
            return step_for(self.clip, FINENESS)
        return super().step

    @property
    def quantile(self) -> float | None:
        return self.clip_quantile

    @property
    def tells_clip(self) -> bool:
        return self.clip is not None and not TRUSTS[self.trust].sees_uploads

    @property
    def stretch(self) -> float:
        return math.sqrt(reach(self.band) ** 2 + (2.0 * TOLD**2 if self.tells_clip else 0.0))


class GaussianSettings(GaussianNoiseSettings):
    """These are the settings of Gaussian noise; on a grid the discrete law takes its place."""

    mechanism: Literal["gaussian"] = "gaussian"


class DiscreteGaussianSettings(GaussianNoiseSettings):
    """These are the settings of discrete Gaussian noise, which lives on a grid."""

    mechanism: Literal["discrete-gaussian"] = "discrete-gaussian"


def _once(counts: Floats) -> Floats:
    """Return what stands for `counts` in a product: one number where all places share it, whose root is taken once."""
    return counts[tuple(slice(1) if stride == 0 else slice(None) for stride in counts.strides)]


def _sum(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    """A sum of n Gaussians is a Gaussian of sqrt(n) times the deviation."""
    drawn = generator.standard_normal(counts.shape)
    drawn *= noise.scale * np.sqrt(_once(counts))
    return drawn


def _clients(noise: Noise, first: keyed.UInts, second: keyed.UInts) -> Floats:
    return noise.scale * keyed.as_normal(first, second)


def _sum_on_grid(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    """Round a normal number to the grid: its law differs from the sum's by less than a simulation can show."""
    assert noise.step is not None
    drawn = generator.standard_normal(counts.shape)
    drawn *= np.sqrt(_once(counts))
    drawn *= noise.scale / noise.step
    np.rint(drawn, out=drawn)
    drawn *= noise.step
    return drawn


def _clients_on_grid(noise: Noise, first: keyed.UInts, second: keyed.UInts) -> Floats:
    assert noise.step is not None
    return np.rint(keyed.as_normal(first, second) * (noise.scale / noise.step)) * noise.step


class Gaussian(Additive):
    name = "gaussian"
    settings: type[BaseModel] | None = GaussianSettings
    trusts = ("central", "local")
    guarantees = True
    unknown = "a pure epsilon: there is none"
    citation = "Dong, Roth & Su 2022, Cor. 2.13; Mironov 2017, Prop. 7"
    sampled = True
    samplers: ClassVar = {"float": Simulated(_sum, _clients)}
    on_device = False  # in floating point: the discrete law is what devices draw
    on_grid = "discrete-gaussian"
    without_clip = "unclipped"
    symbol = "std"

    def std(self, noise: Noise) -> float:
        """Return sigma; on a grid the deviation differs from it by less than 1e-6 of it, from one step on."""
        return noise.scale

    def scale_of(self, std: float) -> float:
        return std

    def curve(self, event: Event) -> Floats:
        """Return the curve of Mironov 2017, Prop. 7, whatever the dimension; it bounds the discrete law's.

        Of that, for whole shifts, see Canonne, Kamath & Steinke 2020, Thm. 14.
        """
        return ORDERS * (0.5 / event.multiplier**2)

    def pure(self, event: Event) -> float:
        return math.inf

    def gaussian(self, event: Event) -> float | None:
        return event.multiplier

    def in_library(self, event: Event) -> Callable[[Any], Any] | None:
        return lambda library: library.GaussianDpEvent(event.multiplier)


SPARE = 3.0
"""Deviation, in steps, of the random rounding that turns continuous Gaussian noise into the discrete law."""
FINE = 10.0
"""Deviation, in steps, from which on that way to account for the discrete law is better than zCDP."""


class DiscreteGaussian(Gaussian):
    """This is noise of whole steps, as private as a continuous Gaussian of hardly less deviation.

    Add N(0, s^2) to a vector of whole steps, and round each value y to a whole z with probability proportional to
    exp(-(z - y)^2 / (2 `SPARE`^2)). A shift of the vector by whole steps shifts the result alike, so this only
    processes the output of a Gaussian mechanism. It comes to discrete Gaussian noise with sigma^2 = s^2 + `SPARE`^2,
    but for a factor within 1 +- 4 exp(-2 pi^2 `SPARE`^2) < 1 +- 1e-76 on each probability (Peikert 2010, Thm. 3.1: the
    sums over the grid are theta functions). Over 10^12 releases of 10^12 values that adds less than 1e-50 to epsilon.
    """

    name = "discrete-gaussian"
    settings = DiscreteGaussianSettings
    citation = "Peikert 2010, Thm. 3.1, with Dong, Roth & Su 2022, Cor. 2.13; Canonne, Kamath & Steinke 2020, Thm. 14"
    sampled = False
    samplers: ClassVar = {"grid": Simulated(_sum_on_grid, _clients_on_grid)}
    on_device = True
    symbol = "sigma"

    def exact(self, scale: int, size: int) -> Ints:
        return exact.discrete_gaussian(scale, size)

    def tail(self, scale: int, size: int, doubt: float) -> Tail:
        """Return the tail of a sub-Gaussian vector of this sigma (Canonne et al. 2020, Lemma 22).

        Its length is bounded by Hsu, Kakade & Zhang 2012, Theorem 2.1, its values by a union bound over both signs.
        """
        t = -math.log(doubt)
        length = scale * math.sqrt(size + 2 * math.sqrt(size * t) + 2 * t)
        return Tail("l2", length, scale * math.sqrt(2 * (math.log(2 * size) + t)))

    def strength(self, scale: float, sensitivity: float, norm: Norm, step: float | None) -> tuple[float, int]:
        assert step is not None
        return scale / sensitivity, max(1, math.floor(sensitivity / step))

    def check(self, event: Event) -> None:
        if event.steps < 0:
            raise InputError(f"a sensitivity is a number of steps of the grid, got {event.steps}")

    def by_zcdp(self, event: Event) -> bool:
        return self.gaussian(event) is None

    def gaussian(self, event: Event) -> float | None:
        """Return the multiplier of the continuous law that it is made of; None: too few steps, or nobody counted them.

        The last factor leaves room for the rounding of floats.
        """
        sigma = event.multiplier * event.steps
        return None if sigma < FINE else event.multiplier * math.sqrt(1.0 - (SPARE / sigma) ** 2) * (1.0 - 2.0**-40)

    def in_library(self, event: Event) -> Callable[[Any], Any] | None:
        multiplier = self.gaussian(event)
        return None if multiplier is None else lambda library: library.GaussianDpEvent(multiplier)
