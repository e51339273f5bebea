"""PrivUnitG is experimental: it releases one unit vector per client under pure local epsilon, and only once.

A client with the unit vector v draws a Gaussian vector whose component along v lies above a threshold with probability
p, and below it else (Asi, Feldman & Talwar 2022, Algorithm 2). The output is that vector over a constant that makes it
unbiased. Owns: the parameters of an epsilon, and the draw. It needs scipy, works in floating point (simulation-grade),
and says nothing about the update's length: only the direction is released.
"""

import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy import keyed
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.noise_key import NoiseBase

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PrivUnitG:
    """PrivUnitG has two parameters.

    `likely`: probability p of the cap; `below`: the mass q of a standard normal below the cap's threshold.

    The density of an output is larger by at most p / (1 - q) over (1 - p) / q than for any other unit vector, so
    epsilon = log(p / (1 - p)) + log(q / (1 - q)).
    """

    likely: float
    below: float

    @classmethod
    def of(cls, epsilon: float) -> "PrivUnitG":
        """Find the parameters of the least error at this epsilon, by search over its two parts.

        >>> round(PrivUnitG.of(8.0).error, 3)
        0.133
        """
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise InputError(f"epsilon must be a number above 0, got {epsilon}")
        special, optimize = _scipy("special"), _scipy("optimize")

        def at(share: float) -> "PrivUnitG":
            return cls(float(special.expit(share * epsilon)), float(special.expit((1.0 - share) * epsilon)))

        found = optimize.minimize_scalar(lambda s: at(s).error, bounds=(0.0, 1.0), method="bounded")
        return at(float(found.x))

    @property
    def epsilon(self) -> float:
        """Return the pure epsilon under replace-one."""
        return math.log(self.likely / (1.0 - self.likely)) + math.log(self.below / (1.0 - self.below))

    @property
    def event(self) -> Event:
        """Return the event for a ledger: all that is claimed is the pure epsilon."""
        return Event("pure", multiplier=1.0 / self.epsilon)

    @property
    def mean(self) -> float:
        """Return the mean of the component along v, in standard deviations.

        phi(t) (p / (1 - q) - (1 - p) / q) at threshold t.
        """
        threshold = float(_scipy("special").ndtri(self.below))
        density = math.exp(-(threshold**2) / 2.0) / math.sqrt(2.0 * math.pi)
        return density * (self.likely / (1.0 - self.below) - (1.0 - self.likely) / self.below)

    @property
    def error(self) -> float:
        """Return the expected squared error of one output, over the dimension, where that is large."""
        return 1.0 / self.mean**2

    def release(self, vectors: npt.ArrayLike, base: NoiseBase, clients: npt.ArrayLike) -> Floats:
        """Draw each client's output, unbiased for its unit vector: float64 [C, d] from directions [C, d].

        `base` keys the round's noise. A vector that is zero or not finite stands for a direction drawn at random.
        """
        values = np.asarray(vectors, dtype=np.float64)
        words = base.words(clients, 1 + 2 * values.shape[1])
        instead, across = np.split(keyed.as_normal(words[:, 1:, 0], words[:, 1:, 1]), 2, axis=1)
        unit = _units(values, instead)
        cap, place = keyed.as_uniform(words[:, 0]).T[..., None]
        mass = np.where(cap < self.likely, self.below + (1.0 - self.below) * place, self.below * place)
        along = _scipy("special").ndtri(np.clip(mass, 2.0**-60, 1.0 - 2.0**-53))
        across -= (across * unit).sum(axis=1, keepdims=True) * unit
        return (along * unit + across) / self.mean


def _units(values: Floats, instead: Floats) -> Floats:
    """Divide vectors by their length; of those that have none, take `instead`."""
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scaled = np.where(usable, values / np.where(usable, largest, 1.0), instead)
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def _scipy(part: str) -> Any:
    try:
        return importlib.import_module(f"scipy.{part}")
    except ImportError as error:
        raise InputError("PrivUnitG needs scipy: pip install 'edgefr[cloud]'") from error
