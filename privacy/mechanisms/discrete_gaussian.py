"""Discrete Gaussian noise is whole steps of a grid. Its scale is sigma, close to its standard deviation."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from privacy import exact
from privacy.grid import discrete_gaussian, sum_of_discrete_gaussian
from privacy.guarantee import Event, zcdp_of_gaussian
from privacy.mechanism import ORDERS, Additive, Floats, Ints, Noise, Simulated, Tail, UInts
from privacy.settings import NoiseSettings


class DiscreteGaussianSettings(NoiseSettings):
    """These are the settings of discrete Gaussian noise, which lives on a grid."""

    mechanism: Literal["discrete-gaussian"] = "discrete-gaussian"


def _sum(noise: Noise, counts: Floats, generator: Any) -> Floats:
    assert noise.step is not None
    return sum_of_discrete_gaussian(noise.scale, noise.step, counts, generator)


def _clients(noise: Noise, first: UInts, second: UInts) -> Floats:
    assert noise.step is not None
    return discrete_gaussian(first, second, noise.scale, noise.step)


class DiscreteGaussian(Additive):
    name = "discrete-gaussian"
    settings = DiscreteGaussianSettings
    trusts = ("central", "local")
    guarantees = True
    unknown = "a pure epsilon: there is none; its exact privacy loss distribution in many dimensions"
    citation = "Canonne, Kamath & Steinke 2020, Thm. 4 and 14"
    samplers: ClassVar = {"grid": Simulated(_sum, _clients)}
    on_device = True
    on_grid = "discrete-gaussian"
    symbol = "sigma"
    without_clip = "unclipped"

    def exact(self, scale: int, size: int) -> Ints:
        return exact.discrete_gaussian(scale, size)

    def tail(self, scale: int, size: int, doubt: float) -> Tail:
        """Return the tail of a sub-Gaussian vector of this sigma (Canonne et al. 2020, Lemma 22).

        Its length is bounded by Hsu, Kakade & Zhang 2012, Theorem 2.1, its values by a union bound over both signs.
        """
        t = -math.log(doubt)
        length = scale * math.sqrt(size + 2 * math.sqrt(size * t) + 2 * t)
        return Tail("l2", length, scale * math.sqrt(2 * (math.log(2 * size) + t)))

    def std(self, noise: Noise) -> float:
        """Return sigma: from one step on the deviation differs from it by less than 1e-6 of it."""
        return noise.scale

    def scale_of(self, std: float) -> float:
        return std

    def curve(self, event: Event) -> Floats:
        """Return the curve of the Gaussian of the same scale, which bounds this one for whole shifts."""
        return ORDERS * zcdp_of_gaussian(event.multiplier)

    def pure(self, event: Event) -> float:
        return math.inf

    def by_zcdp(self, event: Event) -> bool:
        return True
