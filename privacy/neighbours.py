"""This works out how many shares of its neighbours open a secret of a device, for devices and for servers alike.

A secure sum is safe while no server can get enough shares of both secrets of one device. An honest neighbour gives a
share of one of them, and a helper of the server gives both. So the number must be more than half of neighbours and
helpers together: 2 T > n + h. A device takes nobody's word for it, and a server that names another number is refused.
"""

from __future__ import annotations

import math
from functools import lru_cache

HELPERS = 0.1
"""The part of the devices that tells a server all it knows, at most, as devices assume it."""
EVERYBODY = 100
"""So many devices and fewer are all neighbours of each other; of more, a device has at least so many neighbours."""
MOST_NEIGHBOURS = 512
"""Neighbours of a device, at most: shares for many more would take it minutes."""
MOST = 1 << 16
"""Devices in one sum, at most."""
SECURITY = 40
"""Bits: a device's vector is open to the server and its helpers once in 2 to this power."""


def threshold(neighbours: int, helpers: float = HELPERS) -> int:
    """Return how many shares open a secret of a device that has so many neighbours.

    They may be more than there are neighbours: then there can be no sum.

    >>> threshold(2), threshold(9), threshold(99), threshold(230)
    (2, 6, 55, 151)
    """
    return (neighbours + _helping(neighbours, helpers)) // 2 + 1


def part_of(part: float, devices: int) -> int:
    """Return a part of devices, rounded up.

    >>> part_of(0.1, 70), part_of(0.1, 71)
    (7, 8)
    """
    return math.ceil(round(part * devices, 9))


@lru_cache(maxsize=256)
def _helping(neighbours: int, helpers: float) -> int:
    """Return how many of the neighbours may help the server.

    Up to `EVERYBODY` devices all are in view, and a part of them helps. Of more, neighbours are drawn, and more than
    that part of them may be helpers by chance. A device does not know of how many they were drawn, so the chance is
    bounded whatever that is: by independent draws, with a part that is a little larger since it is rounded up and the
    device itself is no helper; and so that it holds for each of `MOST` devices together.
    """
    if neighbours < EVERYBODY:
        return min(part_of(helpers, neighbours + 1), neighbours)
    chance, part, bound = 0.0, helpers + (1 + helpers) / neighbours, 2.0**-SECURITY / MOST
    if helpers == 0 or part >= 1:
        return 0 if helpers == 0 else neighbours
    ways = math.lgamma(neighbours + 1)
    for number in range(neighbours, -1, -1):
        apart = math.lgamma(number + 1) + math.lgamma(neighbours - number + 1)
        chance += math.exp(ways - apart + number * math.log(part) + (neighbours - number) * math.log1p(-part))
        if chance > bound:
            return number
    return 0
