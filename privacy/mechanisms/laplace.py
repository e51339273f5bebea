"""Laplace noise: in floating point, and on a grid as discrete Laplace noise of whole steps. Its scale is b."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel

from privacy import exact, keyed
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.mechanism import ORDERS, Additive, Floats, Ints, Noise, Norm, Simulated, Tail, divergences
from privacy.settings import NoiseSettings


class LaplaceSettings(NoiseSettings):
    """These are the settings of Laplace noise; on a grid the discrete law takes its place."""

    mechanism: Literal["laplace"] = "laplace"


class DiscreteLaplaceSettings(NoiseSettings):
    """These are the settings of discrete Laplace noise, which lives on a grid."""

    mechanism: Literal["discrete-laplace"] = "discrete-laplace"


def _sum(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    """One Laplace draw is the difference of two exponentials, so a sum of n is that of two Gamma(n) draws."""
    shape = counts.shape
    return noise.scale * (generator.standard_gamma(counts, shape) - generator.standard_gamma(counts, shape))


def _clients(noise: Noise, first: keyed.UInts, second: keyed.UInts) -> Floats:
    return noise.scale * keyed.as_laplace(first)


def _sum_on_grid(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    """One draw is the difference of two geometric ones, so a sum of n is that of two negative binomial ones."""
    assert noise.step is not None
    success = -math.expm1(-noise.step / noise.scale)
    terms = np.maximum(counts, 1.0)  # zero terms are not a law numpy knows
    steps = generator.negative_binomial(terms, success) - generator.negative_binomial(terms, success)
    return np.where(counts > 0, steps * noise.step, 0.0)


def _clients_on_grid(noise: Noise, first: keyed.UInts, second: keyed.UInts) -> Floats:
    """Make noise of pairs of random words: the floor of an exponential number is geometric."""
    assert noise.step is not None
    scale = noise.scale / noise.step
    up, down = (np.floor(-np.log1p(-keyed.as_uniform(words)) * scale) for words in (first, second))
    return (up - down) * noise.step


class Laplace(Additive):
    name = "laplace"
    settings: type[BaseModel] | None = LaplaceSettings
    trusts = ("central", "local")
    guarantees = True
    unknown = "under an L2 clip a pure epsilon, which grows with the dimension"
    citation = "Dwork et al. 2006; Mironov 2017, Prop. 6; Bun & Steinke 2016, Prop. 1.4"
    samplers: ClassVar = {"float": Simulated(_sum, _clients)}
    on_device = False  # in floating point: the discrete law is what devices draw
    on_grid = "discrete-laplace"
    symbol = "b"
    without_clip = "paper-laplace"

    def std(self, noise: Noise) -> float:
        return noise.scale * 2.0**0.5

    def scale_of(self, std: float) -> float:
        return std / math.sqrt(2.0)

    def curve(self, event: Event) -> Floats:
        """Return the Renyi curve; under an L2 clip one of zCDP, whatever the dimension.

        There a coordinate that moves by d_i is (d_i / b)-DP, hence (d_i / b)**2 / 2 zCDP (Bun & Steinke 2016, Prop.
        1.4), and the coordinates' sum is sensitivity_2**2 / (2 b**2). The discrete law is as private per coordinate.
        """
        return ORDERS * (0.5 / event.multiplier**2) if event.norm == "l2" else self._curve_of_one(event)

    def _curve_of_one(self, event: Event) -> Floats:
        """Return the curve of one coordinate that moves alone (Mironov 2017, Prop. 6).

        It is convex in the shift and 0 at 0, so that is worst under an L1 clip.
        """
        shift, twice = 1.0 / event.multiplier, 2.0 * ORDERS - 1.0
        first = np.log(ORDERS / twice) + (ORDERS - 1.0) * shift
        return divergences(np.logaddexp(first, np.log((ORDERS - 1.0) / twice) - ORDERS * shift))

    def pure(self, event: Event) -> float:
        return 1.0 / event.multiplier if event.norm == "l1" else math.inf

    def by_zcdp(self, event: Event) -> bool:
        return event.norm == "l2"

    def in_library(self, event: Event) -> Callable[[Any], Any] | None:
        return None if event.norm != "l1" else lambda library: library.LaplaceDpEvent(event.multiplier)


class DiscreteLaplace(Laplace):
    name = "discrete-laplace"
    settings = DiscreteLaplaceSettings
    unknown = "under an L2 clip a pure epsilon; its exact privacy loss distribution"
    citation = "Ghosh, Roughgarden & Sundararajan 2012; Canonne, Kamath & Steinke 2020"
    samplers: ClassVar = {"grid": Simulated(_sum_on_grid, _clients_on_grid)}
    on_device = True
    without_clip = "unclipped"

    def tail(self, scale: int, size: int, doubt: float) -> Tail:
        """Return the tail of absolute values that are each at most one step above an exponential draw of mean b.

        P(|x| >= k) = 2 q^k / (1 + q) <= q^(k-1) for q = exp(-1/b); sums of exponentials are bounded by Boucheron,
        Lugosi & Massart 2013, §2.4, their largest by a union bound.
        """
        t = -math.log(doubt)
        length = size + scale * (size + math.sqrt(2 * size * t) + t)
        return Tail("l1", length, 1 + scale * (math.log(size) + t))

    def std(self, noise: Noise) -> float:
        assert noise.step is not None
        ratio = -noise.step / noise.scale
        return noise.step * math.sqrt(2.0 * math.exp(ratio)) / -math.expm1(ratio)

    def exact(self, scale: int, size: int) -> Ints:
        return exact.discrete_laplace(scale, size)

    def strength(self, scale: float, sensitivity: float, norm: Norm, step: float | None) -> tuple[float, int]:
        assert step is not None
        steps = max(1, math.floor(sensitivity / step))
        if norm == "l1":  # the L1 norm of whole steps is a whole number of steps
            sensitivity = steps * step
        return scale / sensitivity, steps

    def check(self, event: Event) -> None:
        if event.steps < 1:
            raise InputError(f"discrete-laplace needs its sensitivity in whole steps of the grid, got {event.steps}")

    def _curve_of_one(self, event: Event) -> Floats:
        """Return the sum over the grid in closed form, for a shift of `steps` steps; it is as convex as a Laplace's.

        With q = exp(-step / b) and r = q ** (2 a - 1), the sum of p(k) ** a p(k - m) ** (1 - a) over all k is
        u q ** ((1 - a) m) + v q ** (a m), where u = (1 / (1 - q) + r / (1 - r)) w, v = (1 / (1 - q) - 1 / (1 - r)) w
        and w = (1 - q) / (1 + q); u and v are positive and add up to 1.
        """
        rate = 1.0 / (event.multiplier * event.steps)  # step / b
        q, shift = math.exp(-rate), 1.0 / event.multiplier
        r = np.exp(-rate * (2.0 * ORDERS - 1.0))
        one_less_q, one_less_r = -math.expm1(-rate), -np.expm1(-rate * (2.0 * ORDERS - 1.0))
        first = (1.0 + one_less_q * r / one_less_r) / (1.0 + q)
        second = np.maximum((1.0 - one_less_q / one_less_r) / (1.0 + q), np.finfo(np.float64).tiny)
        log_sum = np.logaddexp(np.log(first) + (ORDERS - 1.0) * shift, np.log(second) - ORDERS * shift)
        return divergences(log_sum)

    def in_library(self, event: Event) -> None:
        return None
