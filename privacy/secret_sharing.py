"""A secret is cut into shares, so that any `threshold` of them give it back and fewer say nothing (Shamir 1979).

Numbers are integers modulo `PRIME`, the smallest prime above 2^256, so that every 32 bytes are a secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

PRIME = (1 << 256) + 297
SECRET = 32
"""Bytes of a secret."""
SHARE = 33
"""Bytes of a share: a number below `PRIME`."""


def cut(secret: bytes, threshold: int, places: Sequence[int]) -> dict[int, bytes]:
    """Return a share of a secret for each of `places`, distinct numbers from 1.

    The shares are the values there of a polynomial of degree `threshold - 1`, which is the secret at 0 and random else.

    >>> shares = cut(bytes(31) + b"!", 2, [1, 2, 3])
    >>> joined({1: shares[1], 3: shares[3]}) == bytes(31) + b"!"
    True
    """
    if len(secret) != SECRET or not 1 <= threshold <= len(places):
        raise ValueError(f"{len(secret)} bytes cannot be cut for {len(places)} with a threshold of {threshold}")
    if len(set(places)) < len(places) or not all(0 < place < 1 << 32 for place in places):
        raise ValueError("shares lie at distinct numbers from 1")
    polynomial = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {place: _at(polynomial, place).to_bytes(SHARE) for place in places}


def _at(polynomial: Sequence[int], place: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * place + coefficient) % PRIME
    return value


def joined(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of `shares` by place, of which there must be as many as the threshold or more.

    Raises `ValueError` where they are not shares of one secret of 32 bytes, as far as that shows; of too few shares
    nothing shows it.
    """
    values = {place: int.from_bytes(share) for place, share in shares.items()}
    if not values or any(len(share) != SHARE for share in shares.values()) or max(values.values()) >= PRIME:
        raise ValueError("these are not shares of a secret")
    total = 0
    for place, value in values.items():  # Lagrange's polynomial of each share, at 0
        above = below = 1
        for other in values:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        total += value * above * pow(below, -1, PRIME)
    total %= PRIME
    if total >> (8 * SECRET):
        raise ValueError("these are not shares of one secret")
    return total.to_bytes(SECRET)
