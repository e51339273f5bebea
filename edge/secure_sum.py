"""A device's part in a sum that nobody can open: the server learns the total and no single vector.

Bonawitz et al. (CCS 2017), with the sparse neighbourhoods of Bell et al. (CCS 2020). In five steps a device sends

    keys ─► shares of its two secrets, sealed for each neighbour ─► its vector, masked ─► what it agrees to ─► shares

A masked vector is the vector plus the device's own mask, plus the masks it has with neighbours before it, minus those
with neighbours after it, modulo 2^32. Of a neighbour whose vector arrived a device reveals its share of that one's own
mask; of one that went away its share of the key of the masks in pairs. It does so only once, and only after a quorum of
all devices has signed the same two lists: who sent shares, and whose vectors arrived.

A server may send each device what it likes, but hands on everybody's own keys, and is helped by a part of the devices
that is no more than `helpers`. What follows is proved in `docs/threat-model.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from typing import Literal

import numpy as np
import numpy.typing as npt

from privacy.agreement import has_signed, quorum, roster_digest, statement
from privacy.errors import InputError
from privacy.masks import KEY, Keys, Revealed, Words, agreed, public_of, stream
from privacy.neighbours import EVERYBODY, HELPERS, MOST_NEIGHBOURS, threshold
from privacy.secret_sharing import SHARE, cut

NONCE, TAG = 12, 16
SEALED = NONCE + 2 * SHARE + TAG
"""Bytes of what one neighbour gets: a share of either secret, encrypted and authenticated by ChaCha20-Poly1305."""

FEWEST = 3
"""Vectors in a sum, below which a device reveals nothing: of two, each would know the other's."""


class SumRefused(InputError):
    """A device refuses to go on in a secure sum, and stays out of this one."""


class Participant:
    """This is one device in one session; its steps must come in their order, each once.

    `session`: what tells this sum from every other, the same for all; `number`: the device's in it, from 1; `helpers`:
    the part of the devices that it takes to help the server.
    """

    def __init__(self, session: bytes, number: int, helpers: float = HELPERS):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.session, self.number, self.helpers = session, number, helpers
        self._signing = Ed25519PrivateKey.generate()
        self._mask, self._share, self._own = (os.urandom(KEY) for _ in range(3))
        self._neighbours: dict[int, Keys] = {}
        self._roster: dict[int, bytes] = {}
        self._named, self._threshold = b"", 0
        self._sent: Set[int] = frozenset()
        self._arrived: Set[int] = frozenset()
        self._held: dict[int, tuple[bytes, bytes]] = {}
        self._next = "share"

    @property
    def keys(self) -> Keys:
        """Return the public keys, which are sent first."""
        return Keys(public_of(self._mask), public_of(self._share), self._signing.public_key().public_bytes_raw())

    def share(self, neighbours: Mapping[int, Keys], roster: Mapping[int, bytes], told: int) -> dict[int, bytes]:
        """Return what each neighbour is to be sent: shares of both secrets, which it alone can open.

        `roster`: the keys that all devices of the sum sign with; `told`: how many shares open a secret, as the server
        says, which must be what the device works out by itself.
        """
        self._step("share", "mask")
        self._enlist(neighbours, roster)
        needed = threshold(len(neighbours), self.helpers)
        if self.number in neighbours or told != needed or not needed <= len(neighbours) <= MOST_NEIGHBOURS:
            raise SumRefused(
                f"a secure sum with {len(neighbours)} neighbours and a threshold of {told} is refused: {needed} must "
                "be needed, more than half of the neighbours and of the helpers among them, so that nobody gets both "
                "secrets of one"
            )
        if len({keys.share for keys in neighbours.values()} | {self.keys.share}) <= len(neighbours):
            raise SumRefused("a secure sum is refused: two devices in it have one key")
        self._neighbours, self._threshold = dict(neighbours), needed
        own = cut(self._own, needed, list(neighbours))
        pairs = cut(self._mask, needed, list(neighbours))
        return {other: self._sealed(other, own[other] + pairs[other]) for other in neighbours}

    def masked(self, vector: npt.NDArray[np.int32], inbox: Mapping[int, bytes]) -> Words:
        """Return the vector, masked; `inbox` has what each neighbour that is still there sent to this device."""
        self._step("mask", "agree")
        if not inbox.keys() <= self._neighbours.keys() or len(inbox) < self._threshold:
            raise SumRefused(
                f"a secure sum is refused: {len(inbox)} neighbours sent shares, and {self._threshold} are needed"
            )
        self._held = {other: self._opened(other, sealed) for other, sealed in inbox.items()}
        total = vector.astype(np.int32, copy=False).view(np.uint32) + stream(self._own, vector.size)
        for other in inbox:
            pair = stream(self._agreed(other, self._mask, self._neighbours[other].mask, "mask"), vector.size)
            total = total + pair if self.number < other else total - pair
        return total

    def agree(self, sent: Set[int], arrived: Set[int]) -> bytes:
        """Return this device's signature under who sent shares and whose vectors arrived, of all devices of the sum."""
        self._step("agree", "reveal")
        near = self._neighbours.keys()
        if not arrived <= sent <= self._roster.keys() or self.number not in arrived or sent & near != self._held.keys():
            raise SumRefused("a secure sum is refused: who is said to be in it are not those whose shares came")
        found, needed = len(arrived & near), max(self._threshold, FEWEST - 1)
        if found < needed:
            raise SumRefused(
                f"a secure sum is refused: the vectors of {found} neighbours arrived, and {needed} are needed"
            )
        self._sent, self._arrived = frozenset(sent), frozenset(arrived)
        return self._signing.sign(statement(self._named, self._sent, self._arrived))

    def reveal(self, signatures: Mapping[int, bytes]) -> Revealed:
        """Return the shares that open the sum that this device agreed to, once enough others have signed the same."""
        self._step("reveal", "nothing")
        said, needed = statement(self._named, self._sent, self._arrived), quorum(len(self._roster), self.helpers)
        others = signatures.keys() & self._arrived - {self.number}
        same = 1 + sum(has_signed(self._roster[n], signatures[n], said) for n in others)
        if same < needed:
            raise SumRefused(
                f"a secure sum is refused: {same} of {len(self._roster)} devices were told that the same vectors "
                f"arrived, and {needed} must be"
            )
        own = {n: self._held[n][0] for n in self._held.keys() & self._arrived}
        return Revealed(own, {n: self._held[n][1] for n in self._held.keys() - self._arrived})

    def _enlist(self, neighbours: Mapping[int, Keys], roster: Mapping[int, bytes]) -> None:
        own = {self.number: self.keys.sign, **{n: keys.sign for n, keys in neighbours.items()}}
        if any(roster.get(n) != key for n, key in own.items()) or len(set(roster.values())) < len(roster):
            raise SumRefused("a secure sum is refused: its list of devices is not that of their keys")
        if len(neighbours) < min(len(roster) - 1, EVERYBODY):
            raise SumRefused(
                f"a secure sum is refused: of {len(roster)} devices {len(neighbours)} are neighbours of this one, and "
                f"{min(len(roster) - 1, EVERYBODY)} must be"
            )
        self._roster, self._named = dict(roster), roster_digest(self.session, roster)

    def _step(self, now: str, then: str) -> None:
        if self._next != now:
            raise SumRefused(f"a secure sum is refused: a device was asked to {now}, and its next step is {self._next}")
        self._next = then

    def _agreed(self, other: int, secret: bytes, public: bytes, use: Literal["mask", "share"]) -> bytes:
        try:
            return agreed(secret, public, self.session, use, (self.number, other))
        except ValueError as error:
            raise SumRefused(f"a secure sum is refused: the key of device {other} is none") from error

    def _sealed(self, other: int, shares: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        key, nonce = self._agreed(other, self._share, self._neighbours[other].share, "share"), os.urandom(NONCE)
        return nonce + ChaCha20Poly1305(key).encrypt(nonce, shares, self._between(self.number, other))

    def _opened(self, other: int, sealed: bytes) -> tuple[bytes, bytes]:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        key = self._agreed(other, self._share, self._neighbours[other].share, "share")
        try:
            shares = ChaCha20Poly1305(key).decrypt(sealed[:NONCE], sealed[NONCE:], self._between(other, self.number))
        except (InvalidTag, ValueError) as error:
            raise SumRefused(f"a secure sum is refused: device {other} did not send these shares") from error
        if len(shares) != 2 * SHARE:
            raise SumRefused(f"a secure sum is refused: device {other} sent {len(shares)} bytes of shares")
        return shares[:SHARE], shares[SHARE:]

    def _between(self, sender: int, receiver: int) -> bytes:
        return sender.to_bytes(8) + receiver.to_bytes(8) + self._named
