"""This says what the devices of a secure sum agree on before any of them reveals a share.

This is the consistency check of Bonawitz et al. (CCS 2017). Each device signs once, with a key of that sum, which
devices sent shares and whose vectors arrived. It reveals shares only after more than half of all devices and helpers
together have signed the same, so no server gets two statements signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set

from privacy.neighbours import HELPERS, part_of

SIGNATURE = 64
"""Bytes of an Ed25519 signature (RFC 8032)."""


def quorum(devices: int, helpers: float = HELPERS) -> int:
    """Return how many of so many devices must have signed the same: two statements cannot both have that many.

    >>> quorum(3), quorum(10), quorum(100), quorum(1000)
    (3, 6, 56, 551)
    """
    return (devices + part_of(helpers, devices)) // 2 + 1


def roster_digest(session: bytes, roster: Mapping[int, bytes]) -> bytes:
    """Return what names all devices of a sum and the keys that they sign with, 32 bytes."""
    entries = (number.to_bytes(8) + roster[number] for number in sorted(roster))
    return hashlib.sha256(session + b"".join(entries)).digest()


def statement(roster: bytes, sent: Set[int], arrived: Set[int]) -> bytes:
    """Return the bytes that a device signs: the roster's digest, who sent shares, and whose vectors arrived."""
    lists = "\n".join(" ".join(map(str, sorted(numbers))) for numbers in (sent, arrived))
    return b"edgefr.secure-sum/2 agree\n" + roster + lists.encode()


def has_signed(key: bytes, signature: bytes, said: bytes) -> bool:
    """Say whether a signature is that of a key under what was said."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, said)
    except (InvalidSignature, ValueError):
        return False
    return True
