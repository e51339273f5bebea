"""The server's part in a sum that it cannot open one by one: it hands messages on, and gets the total.

    keys ─► neighbours ─► shares, handed on ─► masked vectors, added ─► signatures ─► shares of masks ─► the total

Up to a hundred devices all are neighbours of all (Bonawitz et al., CCS 2017); of more, each has a few, in a random
circle, as many as `neighbourhood` works out (Bell et al., CCS 2020). A device may go away before any step: who sent a
masked vector is in the sum, nobody else is, and of the others the masks are taken away.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privacy.agreement import has_signed, quorum, roster_digest, statement
from privacy.errors import InputError
from privacy.masks import Keys, Revealed, Words, agreed, public_of, stream
from privacy.neighbours import EVERYBODY, HELPERS, MOST, MOST_NEIGHBOURS, SECURITY, part_of, threshold
from privacy.secret_sharing import joined

CORRECTNESS = 20
"""Bits: a sum cannot be opened once in 2 to this power, where no more devices go away than is assumed."""


@dataclass(frozen=True)
class Trust:
    """This is assumed of devices: `helpers`, the part that tells the server all it knows; `gone`, that goes away.

    A device holds to its own part of helpers, whatever the server's is.
    """

    helpers: float = HELPERS
    gone: float = 0.2

    def __post_init__(self) -> None:
        if not (0 <= self.helpers < 1 and 0 <= self.gone < 1):
            raise InputError("a secure sum's parts of helpers and of devices that go away are from 0 to below 1")


@lru_cache(maxsize=64)
def neighbourhood(devices: int, trust: Trust) -> tuple[int, int]:
    """Return how many neighbours a device has, and of how many the shares open a secret.

    Shares of either secret of a device suffice, but not of both, whatever the server tells whom
    (`privacy.neighbours.threshold`). Raises `InputError` where so few devices with such trust cannot have a sum.

    >>> neighbourhood(10, Trust()), neighbourhood(1000, Trust())
    ((9, 6), (230, 151))
    """
    for count in range(EVERYBODY, min(devices - 1, MOST_NEIGHBOURS), 2) if devices <= MOST else ():
        apart = devices * (trust.helpers + trust.gone) ** (count / 2)  # half of the circle's neighbours are all lost
        if apart > 2.0**-SECURITY:
            continue
        gone = _quantile(devices - 1, part_of(trust.gone, devices), count, 2.0**-CORRECTNESS / devices)
        if count - gone >= threshold(count, trust.helpers):
            return count, threshold(count, trust.helpers)
    needed = threshold(devices - 1, trust.helpers)
    lost = part_of(trust.gone, devices) if devices > EVERYBODY else 0  # of a few, who goes away may end a sum
    if not 2 < devices <= MOST_NEIGHBOURS + 1 or needed > devices - 1 - lost:
        raise InputError(
            f"a secure sum of {devices} devices cannot hold with {trust}; have more devices, or trust more"
        )
    return devices - 1, needed


def _quantile(devices: int, marked: int, drawn: int, tail: float) -> int:
    """Return the number above which marked ones are among those drawn with at most the chance `tail`."""
    ways, chance = math.comb(devices, drawn), 0.0
    for number in range(min(marked, drawn), -1, -1):
        chance += math.comb(marked, number) * math.comb(devices - marked, drawn - number) / ways
        if chance > tail:
            return number
    return 0


class SecureSum:
    """This is one session on the server; its steps come in their order, and each ends when the server says so.

    `session`: as devices have it; `size`: values of a vector; `largest`: no value of a vector is above it, nor its
    negative below, so that a total does not wrap around.
    """

    def __init__(self, session: bytes, size: int, largest: int, trust: Trust | None = None):
        self.session, self.size, self.largest = session, size, largest
        self.trust = Trust() if trust is None else trust
        self.threshold = 0
        self._keys: dict[int, Keys] = {}
        self._near: dict[int, list[int]] = {}
        self._inboxes: dict[int, dict[int, bytes]] = {}
        self._shared: set[int] = set()
        self._arrived: set[int] = set()
        self._total = np.zeros(size, np.uint32)
        self._said = b""
        self.signatures: dict[int, bytes] = {}
        self._own: dict[int, dict[int, bytes]] = {}
        self._pairs: dict[int, dict[int, bytes]] = {}

    def pair(self, keys: Mapping[int, Keys]) -> dict[int, list[int]]:
        """Return the neighbours of each device that announced keys; ends the first step."""
        if self._keys:
            raise InputError("a secure sum's neighbours are drawn once")
        if len(keys) * self.largest >= 1 << 31:
            raise InputError(
                f"a sum of {len(keys):,} vectors with values up to {self.largest:,} does not fit 32 bits; "
                "have fewer devices, or a coarser grid"
            )
        count, self.threshold = neighbourhood(len(keys), self.trust)
        circle = sorted(keys)
        secrets.SystemRandom().shuffle(circle)
        self._keys, size = dict(keys), len(circle)
        for at, number in enumerate(circle):
            if count >= size - 1:
                self._near[number] = [other for other in circle if other != number]
            else:
                half = range(1, count // 2 + 1)
                self._near[number] = [circle[(at + step * way) % size] for step in half for way in (1, -1)]
        return {number: sorted(near) for number, near in self._near.items()}

    @property
    def roster(self) -> dict[int, bytes]:
        """Return the keys that the devices sign with, by number."""
        return {number: keys.sign for number, keys in self._keys.items()}

    def take_shares(self, number: int, sealed: Mapping[int, bytes]) -> None:
        """Hold the shares that a device sends to each of its neighbours."""
        late = number not in self._near or number in self._shared or self._arrived
        if late or sealed.keys() != set(self._near[number]):
            raise InputError(f"device {number} does not send its neighbours shares now")
        self._shared.add(number)
        for other, content in sealed.items():
            self._inboxes.setdefault(other, {})[number] = content

    def inbox(self, number: int) -> dict[int, bytes]:
        """Return the shares that a device was sent, once all have sent theirs or are gone."""
        return self._inboxes.get(number, {}) if number in self._shared else {}

    def openable(self, there: Set[int]) -> set[int]:
        """Return the devices whose secrets the neighbours of theirs that are `there` suffice to open."""
        return {number for number, near in self._near.items() if len(there & set(near)) >= self.threshold}

    def take_masked(self, number: int, vector: Words) -> None:
        """Add a device's masked vector; nothing else of it is kept."""
        if number not in self._shared or number in self._arrived or self._said:
            raise InputError(f"device {number} does not send its vector now")
        if vector.dtype != np.uint32 or vector.shape != (self.size,):
            raise InputError(f"a masked vector is {vector.dtype} {list(vector.shape)} instead of uint32 [{self.size}]")
        self._arrived.add(number)
        self._total += vector

    @property
    def sets(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return who sent shares and whose vectors arrived, which all devices are told alike and sign."""
        return frozenset(self._shared), frozenset(self._arrived)

    def take_signature(self, number: int, signature: bytes) -> None:
        """Hold a device's signature under who sent shares and whose vectors arrived."""
        self._said = self._said or statement(roster_digest(self.session, self.roster), *self.sets)
        if number not in self._arrived or not has_signed(self._keys[number].sign, signature, self._said):
            raise InputError(f"device {number} does not sign what it was told")
        self.signatures[number] = signature

    def agreed(self) -> None:
        """Raise `InputError` where those that signed are too few for any device to reveal a share, or to open all."""
        needed = quorum(len(self._keys), self.trust.helpers)
        if len(self.signatures) < needed or not self._arrived <= self.openable(self.signatures.keys()):
            raise InputError(
                f"the {len(self.signatures)} of {len(self._keys)} devices that agree on whose vectors arrived are too "
                "few to open the sum"
            )

    def asked(self, number: int) -> tuple[set[int], set[int]]:
        """Return whose own masks a device reveals, and whose keys of masks in pairs: numbers of its neighbours."""
        near = self._shared.intersection(self._near[number])
        return near & self._arrived, near - self._arrived

    def take_revealed(self, number: int, shares: Revealed) -> None:
        """Hold what a device reveals."""
        arrived, gone = self.asked(number)
        if number not in self.signatures or shares.own.keys() != arrived or shares.pairs.keys() != gone:
            raise InputError(f"device {number} reveals other shares than it was asked for")
        for of, share in shares.own.items():
            self._own.setdefault(of, {})[number] = share
        for of, share in shares.pairs.items():
            self._pairs.setdefault(of, {})[number] = share

    def opened(self) -> tuple[npt.NDArray[np.int32], Sequence[int]]:
        """Return the total of the vectors that arrived, int32 [size], and whose they are.

        Raises `InputError` where too few shares were revealed; then nothing of any vector is known.
        """
        total = self._total.copy()
        for number in sorted(self._arrived):
            total -= stream(self._secret(number, self._own), self.size)
        for number in sorted(self._shared - self._arrived):
            near = self._arrived.intersection(self._near[number])
            if not near:
                continue
            secret = self._secret(number, self._pairs)
            if public_of(secret) != self._keys[number].mask:
                raise InputError(f"the sum cannot be opened: shares of device {number} are not those of its key")
            for other in near:  # the neighbour added or took this mask; the one that went away did neither
                mask = stream(agreed(secret, self._keys[other].mask, self.session, "mask", (number, other)), self.size)
                total = total - mask if other < number else total + mask
        return total.view(np.int32), sorted(self._arrived)

    def _secret(self, number: int, shares: Mapping[int, Mapping[int, bytes]]) -> bytes:
        found = shares.get(number, {})
        if len(found) < self.threshold:
            raise InputError(
                f"the sum cannot be opened: {len(found)} devices revealed shares of device {number}, and "
                f"{self.threshold} are needed"
            )
        try:
            return joined(dict(list(found.items())[: self.threshold]))
        except ValueError as error:
            raise InputError(f"the sum cannot be opened: {error}, of device {number}") from error
