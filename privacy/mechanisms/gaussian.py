"""Gaussian noise is drawn in floating point; on a grid it is discrete Gaussian noise. Its scale is its deviation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np

from privacy import keyed
from privacy.grid import once
from privacy.guarantee import Event, zcdp_of_gaussian
from privacy.mechanism import ORDERS, Additive, Floats, Noise, Simulated
from privacy.settings import NoiseSettings


class GaussianSettings(NoiseSettings):
    """These are the settings of Gaussian noise; on a grid the discrete law takes its place."""

    mechanism: Literal["gaussian"] = "gaussian"


def _sum(noise: Noise, counts: Floats, generator: np.random.Generator) -> Floats:
    """A sum of n Gaussians is a Gaussian of sqrt(n) times the deviation."""
    drawn = generator.standard_normal(counts.shape)
    drawn *= noise.scale * np.sqrt(once(counts))
    return drawn


def _clients(noise: Noise, first: keyed.UInts, second: keyed.UInts) -> Floats:
    return noise.scale * keyed.as_normal(first, second)


class Gaussian(Additive):
    name = "gaussian"
    settings = GaussianSettings
    trusts = ("central", "local")
    guarantees = True
    unknown = "a pure epsilon: there is none"
    citation = "Dong, Roth & Su 2022, Cor. 2.13; Mironov 2017, Prop. 7"
    sampled = True
    samplers: ClassVar = {"float": Simulated(_sum, _clients)}
    on_device = False  # in floating point: the discrete law is what devices draw
    on_grid = "discrete-gaussian"
    symbol = "std"
    without_clip = "unclipped"

    def std(self, noise: Noise) -> float:
        return noise.scale

    def scale_of(self, std: float) -> float:
        return std

    def curve(self, event: Event) -> Floats:
        """Return the curve of Mironov 2017, Prop. 7."""
        return ORDERS * zcdp_of_gaussian(event.multiplier)

    def pure(self, event: Event) -> float:
        return math.inf

    def gaussian(self, event: Event) -> float:
        return event.multiplier

    def in_library(self, event: Event) -> Callable[[Any], Any]:
        return lambda library: library.GaussianDpEvent(event.multiplier)
