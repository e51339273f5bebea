"""The noise of a round's sum comes from a simulation's key or, for real updates, from the system's secure bits.

Simulated noise repeats with the run's noise key and protects nobody against its holder; real noise has no key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.config import random_streams as purposes
from privacy.mechanism import Noise
from privacy.noise_key import NoiseBase, NoiseKey

Floats = npt.NDArray[np.float64]


class NoiseSource(ABC):
    """This draws the noise of the sums of a round's tensors."""

    @abstractmethod
    def sums(
        self, noise: Noise, tensor: str, number: int, shape: tuple[int, ...], counts: Sequence[int]
    ) -> Iterator[Floats]:
        """Yield the sum of so many draws per coordinate, for every one of `counts`: float64 of `shape`."""


@dataclass(frozen=True)
class SimulatedNoise(NoiseSource):
    """This is keyed by a run's noise key, its seed, the tensor and the round."""

    key: NoiseKey
    seed: int

    def sums(
        self, noise: Noise, tensor: str, number: int, shape: tuple[int, ...], counts: Sequence[int]
    ) -> Iterator[Floats]:
        stream = self.key.stream(self.seed, purposes.noise(tensor), number)
        for count in counts:
            yield noise.of_sum(count, shape, stream)

    def of_clients(self, purpose: str, number: int) -> NoiseBase:
        """Return what keys the noise of single clients in a round."""
        return self.key.base(self.seed, purpose, number)


class RealNoise(NoiseSource):
    """This is exact, and from the system's secure bits: for sums of real people's updates."""

    def sums(
        self, noise: Noise, tensor: str, number: int, shape: tuple[int, ...], counts: Sequence[int]
    ) -> Iterator[Floats]:
        size = int(np.prod(shape))
        for count in counts:
            steps = np.zeros(size, np.int64)
            for _ in range(count):
                steps += noise.exact(size)
            yield np.asarray(steps * (noise.step or 0.0), np.float64).reshape(shape)
