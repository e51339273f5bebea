"""Private tensors that a client makes anew in every round are drawn here, by simulated clients and devices alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge import random_streams as purposes
from privacy import keyed

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Normal:
    """These are normal numbers of mean 0 and standard deviation `scale`, keyed by seed, `purpose` and client.

    >>> Normal("init user", 0.1).values(3, np.array([7]), (2,)).shape, bool(Normal("", 0).values(3, 7, (2,)).any())
    ((1, 2), False)
    """

    purpose: str
    scale: float

    def values(self, seed: int, clients: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
        """Return one tensor per client, float32 [C, *shape]; the same for whoever else is asked about."""
        keys = keyed.fold(keyed.key(seed, self.purpose), np.atleast_1d(clients))
        draws = keyed.normal(keys[:, None], np.arange(int(np.prod(shape))))
        return (draws * self.scale).astype(np.float32).reshape(len(keys), *shape)


def seed_of(seed: int, number: int) -> int:
    """Return the seed of what is made anew in round `number`."""
    return keyed.key(seed, purposes.MADE_ANEW, number)
