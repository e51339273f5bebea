"""Is this the noise that was promised? Laws of noise are written down here a second time, and no sampler is asked.

Every test returns the probability that right noise looks as bad (or an upper bound on it), so tests can be added up.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy.errors import unknown
from privacy.mechanism import Noise

Floats = npt.NDArray[np.float64]
COARSE = 64.0
"""Scales of more steps than that are as good as continuous, but for half a step."""
FEW = 30
"""Of fewer values no likeness is taken: on a coarse grid they may well be equal."""


@dataclass(frozen=True)
class Kind:
    """A kind of law holds what is known of one draw of scale 1 in closed form.

    `power`: that of |x| whose sum is the natural measure of the scale (its law for continuous draws is a Gamma's).
    `mean`, `variance`: of |x| ** power. `fourth`: kurtosis. `cdf`, `log_density` at scale 1.
    """

    power: int
    mean: float
    variance: float
    std: float
    fourth: float
    cdf: Callable[[Floats], Floats]
    log_density: Callable[[Floats], Floats]


def _normal(x: Floats) -> Floats:
    return np.asarray(_stats().norm.cdf(x), np.float64)


def _double_exponential(x: Floats) -> Floats:
    return np.where(x < 0, np.exp(np.minimum(x, 0.0)) / 2.0, 1.0 - np.exp(-np.maximum(x, 0.0)) / 2.0)


_GAUSSIAN = Kind(2, 1.0, 2.0, 1.0, 3.0, _normal, lambda x: -np.square(x) / 2.0)
_LAPLACE = Kind(1, 1.0, 1.0, math.sqrt(2.0), 6.0, _double_exponential, lambda x: -np.abs(x))
KINDS: Mapping[str, Kind] = {
    "gaussian": _GAUSSIAN,
    "discrete-gaussian": _GAUSSIAN,
    "laplace": _LAPLACE,
    "discrete-laplace": _LAPLACE,
}
"""By the name of the mechanism; on a grid, draws are whole steps whose masses are proportional to the density."""


@dataclass(frozen=True)
class Law:
    """This is the law of noise on a coordinate: the sum of `terms` draws of `kind` at `scale`, on a grid of `step`.

    >>> Law("laplace", 0.5).std == 0.5 * 2**0.5
    True
    """

    kind: str
    scale: float
    step: float | None = None
    terms: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("law", self.kind, KINDS)

    @classmethod
    def of_noise(cls, noise: Noise | None) -> Law | None:
        """Return the law of a mechanism's noise; None for no noise, and for a law of somebody's own."""
        return None if noise is None or noise.kind not in KINDS else cls(noise.kind, noise.scale, noise.step)

    @property
    def of(self) -> Kind:
        return KINDS[self.kind]

    @property
    def std(self) -> float:
        return math.sqrt(self._moment(2, self.terms)[0])

    def log_density(self, x: npt.ArrayLike) -> Floats:
        """Return the logarithm of the density of one draw, up to a constant; of a Gaussian of any number of them."""
        return self.of.log_density(np.asarray(x, np.float64) / (self.scale * math.sqrt(self.terms)))

    def cdf(self, x: npt.ArrayLike) -> Floats:
        values, coarse = np.asarray(x, np.float64), self._coarse
        if coarse is None:
            return self.of.cdf((values + (self.step or 0.0) / 2.0) / self.scale)
        steps, masses = coarse
        assert self.step is not None
        place = np.clip(np.rint(values / self.step) - steps[0] + 1, 0, len(masses)).astype(int)
        return np.concatenate([[0.0], np.cumsum(masses)])[place]

    @property
    def _coarse(self) -> tuple[Floats, Floats] | None:
        """Return steps and their masses where the grid shows; None where it does not."""
        if self.step is None or self.scale > COARSE * self.step:
            return None
        reach = math.ceil(64.0 * self.scale / self.step) + 1
        steps = np.arange(-reach, reach + 1.0)
        masses = np.exp(self.of.log_density(steps * (self.step / self.scale)))
        return steps, masses / masses.sum()

    def _moment(self, power: int, terms: int = 1) -> tuple[float, float]:
        """Return mean and variance of |x| ** power of a draw (of the sum of several: of its square)."""
        coarse, kind = self._coarse, self.of
        if coarse is not None:
            assert self.step is not None
            found = np.abs(coarse[0] * self.step) ** power
            mean = float((found * coarse[1]).sum())
            variance = float((np.square(found) * coarse[1]).sum()) - mean**2
        elif power == kind.power:
            mean, variance = kind.mean * self.scale**power, kind.variance * self.scale ** (2 * power)
        else:
            mean = (kind.std * self.scale) ** 2
            variance = (kind.fourth - 1.0) * mean**2
        if terms == 1:
            return mean, variance
        excess = (variance / mean**2 - 2.0) / terms  # of the kurtosis of a sum
        return terms * mean, (excess + 2.0) * (terms * mean) ** 2

    def measured(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the sum of |x| ** power over axis 0 over its mean, and two-sided chances of such a ratio: [...].

        Of continuous draws the sum is a Gamma's exactly (a Gaussian's is chi-square); of others by two moments.
        """
        power = self.of.power if self.terms == 1 else 2
        mean, variance = self._moment(power, self.terms)
        count = values.shape[0]
        ratio = (np.abs(values) ** power).sum(axis=0) / (count * mean)
        shape = count * mean**2 / variance
        law = _stats().gamma(shape, scale=1.0 / shape)
        return ratio, np.minimum(1.0, 2.0 * np.minimum(law.cdf(ratio), law.sf(ratio)))

    def summed(self, terms: int) -> Law:
        """Return the law of the sum of `terms` independent draws."""
        return replace(self, terms=self.terms * terms)


def size_chance(values: Floats, law: Law) -> tuple[float, float]:
    """Return the measured over the promised standard deviation of noise [n], and the chance of a ratio so far off."""
    ratio, chance = law.measured(values.ravel())
    power = law.of.power if law.terms == 1 else 2
    return float(ratio) ** (1.0 / power), float(chance)


def least_chance(values: Floats, law: Law) -> float:
    """Return the chance that any of n coordinates of noise [rounds, n] is so far off by itself (Bonferroni)."""
    if not values.size:
        return 1.0
    return min(1.0, values.shape[1] * float(law.measured(values)[1].min()))


def shape_chance(values: Floats, law: Law) -> tuple[float, float]:
    """Return the largest distance of noise [n] from its law's distribution, and a bound on its chance.

    The Dvoretzky-Kiefer-Wolfowitz inequality with Massart's (1990) constant; it holds for laws on a grid too.
    """
    found, counts = np.unique(values, return_counts=True)
    share = np.cumsum(counts) / values.size
    before = np.concatenate([[0.0], share[:-1]])
    gap = max(
        float(np.abs(share - law.cdf(found)).max()),
        float(np.abs(before - law.cdf(found - (law.step or 0.0))).max()),
    )
    return gap, min(1.0, 2.0 * math.exp(-2.0 * values.size * gap**2))


def likeness_chance(one: Floats, other: Floats) -> tuple[float, float]:
    """Return the correlation of two draws [n] of independent noise, and the chance of one so far from 0.

    By Student's t, exact for Gaussian noise. Of draws that are few or do not vary it says nothing.
    """
    count = len(one)
    if count < FEW:
        return 0.0, 1.0
    a, b = one - one.mean(), other - other.mean()
    length = math.sqrt(float(a @ a) * float(b @ b))
    if length == 0.0:
        return 0.0, 1.0
    r = max(-1.0, min(1.0, float(a @ b) / length))
    if 1.0 - abs(r) < 1e-12:
        return r, 0.0
    t = abs(r) * math.sqrt((count - 2) / (1.0 - r * r))
    return r, float(2.0 * _stats().t.sf(t, count - 2))


def _stats() -> Any:
    return importlib.import_module("scipy.stats")
