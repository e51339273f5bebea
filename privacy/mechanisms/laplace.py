"""Laplace noise is drawn in floating point; on a grid it is discrete Laplace noise. Its scale is b."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np

from privacy import keyed
from privacy.guarantee import Event, zcdp_of_laplace
from privacy.mechanism import ORDERS, Additive, Floats, Noise, Simulated, divergences
from privacy.settings import NoiseSettings


class LaplaceSettings(NoiseSettings):
    """These are the settings of Laplace noise; on a grid the discrete law takes its place."""

    mechanism: Literal["laplace"] = "laplace"


def _sum(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    """One Laplace draw is the difference of two exponentials, so a sum of n is that of two Gamma(n) draws."""
    shape = counts.shape
    return noise.scale * (generator.standard_gamma(counts, shape) - generator.standard_gamma(counts, shape))


def _clients(noise: Noise, first: keyed.UInts, second: keyed.UInts) -> Floats:
    return noise.scale * keyed.as_laplace(first)


class Laplace(Additive):
    name = "laplace"
    settings = LaplaceSettings
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
        """Return the Renyi curve; under L1 that of Mironov 2017, Prop. 6.

        It is convex in the shift and 0 at 0, so one coordinate that moves alone is worst.
        """
        if event.norm == "l2":
            return ORDERS * zcdp_of_laplace(event.multiplier)
        shift, twice = 1.0 / event.multiplier, 2.0 * ORDERS - 1.0
        first = np.log(ORDERS / twice) + (ORDERS - 1.0) * shift
        return divergences(np.logaddexp(first, np.log((ORDERS - 1.0) / twice) - ORDERS * shift))

    def pure(self, event: Event) -> float:
        return 1.0 / event.multiplier if event.norm == "l1" else math.inf

    def by_zcdp(self, event: Event) -> bool:
        return event.norm == "l2"

    def in_library(self, event: Event) -> Callable[[Any], Any] | None:
        return None if event.norm != "l1" else lambda library: library.LaplaceDpEvent(event.multiplier)
