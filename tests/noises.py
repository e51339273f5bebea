"""Simulated noise of a known key, for tests of laws and of what noise is added to."""

import numpy as np
import numpy.typing as npt

from privacy.mechanism import Noise
from privacy.noise_key import NoiseKey

KEY = NoiseKey(bytes(range(16)))


def noise_of_sum(
    kind: str, scale: float, count, shape, seed: int = 0, step: float | None = None
) -> npt.NDArray[np.float64]:
    """Draw `Noise.of_sum`."""
    return Noise(kind, scale, step).of_sum(count, shape, KEY.stream(seed, "test"))


def noise_per_client(
    kind: str, scale: float, clients, size: int, seed: int = 0, number: int = 0, step: float | None = None
) -> npt.NDArray[np.float64]:
    """Draw `Noise.of_clients` of a round."""
    return Noise(kind, scale, step).of_clients(KEY.base(seed, "test", number), clients, size)
