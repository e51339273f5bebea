"""A mask hides an integer vector and cancels in a sum: it is a stream of ChaCha20 (RFC 8439), added modulo 2^32.

A pair of clients agrees on a seed by X25519 (RFC 7748) and HKDF-SHA256 (RFC 5869); one adds its stream and the other
takes it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

KEY = 32
"""Bytes of a key and of a seed."""

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Keys:
    """These are a device's public keys of one secure sum.

    `mask`: for masks in pairs; `share`: for shares that are sent to it; `sign`: for what it agrees to.
    """

    mask: bytes
    share: bytes
    sign: bytes


@dataclass(frozen=True)
class Revealed:
    """These are a device's shares by the number of whose they are: of own masks, and of keys of masks in pairs."""

    own: dict[int, bytes]
    pairs: dict[int, bytes]


def public_of(secret: bytes) -> bytes:
    """Return the public key of a secret X25519 key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agreed(secret: bytes, public: bytes, session: bytes, use: Literal["mask", "share"], pair: tuple[int, int]) -> bytes:
    """Return the 32 bytes that two clients of a session have in common, for one use alone.

    Each makes them of its own secret key and the other's public one. `pair`: their numbers; a third client that
    announces the key of one of them as its own has other bytes in common with everybody. `ValueError` for a public key
    with which everybody would come to the same.

    >>> a, b = bytes(31) + bytes([1]), bytes(31) + bytes([2])
    >>> agreed(a, public_of(b), b"round 3", "mask", (1, 2)) == agreed(b, public_of(a), b"round 3", "mask", (2, 1))
    True
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    shared = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    info = f"edgefr.secure-sum/2 {use} {min(pair)} {max(pair)}"
    return HKDF(SHA256(), KEY, salt=session, info=info.encode()).derive(shared)


def stream(seed: bytes, size: int) -> Words:
    """Return the mask of a seed: uint32 [size], as good as random for whoever has no seed."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    made = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(4 * size))
    return np.frombuffer(made, "<u4").astype(np.uint32, copy=False)
