"""Noise that is correlated over rounds: each round takes back part of what the rounds before it added.

A model is the sum of all updates, so noise that later rounds take back is gone from it (DP-FTRL by matrix
factorisation: Choquette-Choo et al. 2023; McMahan et al. 2024). The noise of round t is n_t = z_t - sum over
0 < j < band of c_j n_(t-j), rounded to the grid, where z_t is independent. Whoever sees all rounds sees no more than
C x + z for the sums x: C has 1 on its diagonal and c_j below. Clients that take part once in any `band` rounds at most
touch columns of C that do not overlap, so each participation is one Gaussian release of sensitivity `reach` times the
clip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

Floats = npt.NDArray[np.float64]

MOST_BAND = 64
MOST_VALUES = 4_000_000
"""Values of a release, at most: rounding moves each by less than a step, and `ROUNDING` bounds them together."""
FINENESS = 18
"""Powers of two between a clip and the grid of correlated noise."""
ROUNDING = 2.0**11 / 2.0**FINENESS
"""The L2 norm of a step in each of `MOST_VALUES` values, in clips."""
HORIZON = 16
"""Bands that the coefficients are best for."""


@cache
def coefficients(band: int) -> tuple[float, ...]:
    """Return c_0 to c_(band - 1), of those with c_j = a g^(j-1) the best over `HORIZON` bands: c_0 = 1.

    Best: the least mean square error of all prefix sums at equal privacy, for a and g in 64ths.

    >>> coefficients(1), [round(c, 3) for c in coefficients(3)]
    ((1.0,), [1.0, 0.672, 0.546])
    """
    if not 1 <= band <= MOST_BAND:
        raise InputError(f"correlated noise goes over 1 to {MOST_BAND} rounds, got {band}")
    a, g = (64.0**-1 * part.ravel() for part in np.mgrid[0:65, 0:65])
    c = np.array([np.ones_like(a), *(a * g**j for j in range(band - 1))])
    rounds = HORIZON * band
    inverse = np.zeros((rounds, len(a)))
    inverse[0] = 1.0
    for t in range(1, rounds):
        inverse[t] = -sum(c[j] * inverse[t - j] for j in range(1, min(band, t + 1)))
    errors = np.cumsum(np.cumsum(np.cumsum(inverse, axis=0) ** 2, axis=0), axis=0)[-1] * (c**2).sum(axis=0)
    return tuple(c[:, np.argmin(np.round(errors / errors[0], 9))].tolist())


def reach(band: int) -> float:
    """Return the sensitivity of a participation, in clips: the norm of a column of C, with rounding.

    >>> reach(1), round(reach(5), 3)
    (1.0, 1.499)
    """
    return math.sqrt(1.0 + sum((c + ROUNDING) ** 2 for c in coefficients(band)[1:]))


class CorrelatedNoise:
    """This keeps the noise of the last rounds, by tensor and round, and makes that of the next.

    Its state is as secret as the sums of the rounds: with it the noise can be taken off.

    >>> noise = CorrelatedNoise(band=2, step=0.125)
    >>> [noise.of_round("w", number, np.array([2.0])).tolist() for number in (1, 2)]
    [[2.0], [0.625]]
    """

    def __init__(self, band: int, step: float | None) -> None:
        self.coefficients, self.step = coefficients(band), step
        self.past: dict[str, dict[int, Floats]] = {}

    def of_round(self, name: str, number: int, fresh: Floats) -> Floats:
        """Return the noise of a tensor in a round, float64 of the shape of `fresh`, which is independent noise."""
        band = len(self.coefficients)
        past = {n: noise for n, noise in self.past.get(name, {}).items() if 0 < number - n < band}
        back = np.zeros_like(fresh)
        for n in sorted(past):
            back += self.coefficients[number - n] * past[n]
        if self.step is not None:
            back = np.rint(back / self.step) * self.step
        past[number] = fresh - back
        self.past[name] = past
        return past[number]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {name: {str(number): noise for number, noise in past.items()} for name, past in self.past.items()}

    def restore(self, state: Mapping[str, Mapping[str, Floats]]) -> None:
        """Go on from `state()`."""
        self.past = {name: {int(number): noise for number, noise in past.items()} for name, past in state.items()}
