"""Discrete Laplace noise is whole steps of a grid. Its scale is b, as a Laplace's."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from privacy import exact
from privacy.errors import InputError
from privacy.grid import discrete_laplace, std_of_discrete_laplace, sum_of_discrete_laplace
from privacy.guarantee import Event, zcdp_of_laplace
from privacy.mechanism import ORDERS, Additive, Floats, Ints, Noise, Norm, Simulated, Tail, UInts, divergences
from privacy.settings import NoiseSettings


class DiscreteLaplaceSettings(NoiseSettings):
    """These are the settings of discrete Laplace noise, which lives on a grid."""

    mechanism: Literal["discrete-laplace"] = "discrete-laplace"


def _sum(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    assert noise.step is not None
    return sum_of_discrete_laplace(noise.scale, noise.step, counts, generator)


def _clients(noise: Noise, first: UInts, second: UInts) -> Floats:
    assert noise.step is not None
    return discrete_laplace(first, second, noise.scale, noise.step)


class DiscreteLaplace(Additive):
    name = "discrete-laplace"
    settings = DiscreteLaplaceSettings
    trusts = ("central", "local")
    guarantees = True
    unknown = "under an L2 clip a pure epsilon; its exact privacy loss distribution"
    citation = "Ghosh, Roughgarden & Sundararajan 2012; Canonne, Kamath & Steinke 2020"
    samplers: ClassVar = {"grid": Simulated(_sum, _clients)}
    on_device = True
    on_grid = "discrete-laplace"
    symbol = "b"
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
        return std_of_discrete_laplace(noise.scale, noise.step)

    def scale_of(self, std: float) -> float:
        return std / math.sqrt(2.0)

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

    def curve(self, event: Event) -> Floats:
        """Return the sum over the grid in closed form, for a shift of `steps` steps.

        It is convex in the shift like a Laplace's.

        With q = exp(-step / b) and r = q ** (2 a - 1), the sum of p(k) ** a p(k - m) ** (1 - a) over all k is
        u q ** ((1 - a) m) + v q ** (a m), where u = (1 / (1 - q) + r / (1 - r)) w, v = (1 / (1 - q) - 1 / (1 - r)) w
        and w = (1 - q) / (1 + q); u and v are positive and add up to 1.
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
        return divergences(log_sum)

    def pure(self, event: Event) -> float:
        return 1.0 / event.multiplier if event.norm == "l1" else math.inf

    def by_zcdp(self, event: Event) -> bool:
        return event.norm == "l2"
