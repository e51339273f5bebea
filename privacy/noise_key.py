"""Simulated noise is keyed by a secret of the run's own, so that nobody who knows the seed can subtract it.

Three kinds of randomness are kept apart by their types. *Draws* (`privacy.keyed`) are public: the seed keys them, and
bundles carry it. *Simulated noise* is drawn from a `NoiseStream` or a `NoiseBase`, which only a `NoiseKey` makes: with
the key a run is repeated to the byte, without it the noise is nobody's to draw again, not even who knows some of it.
*Real noise* (`privacy.exact`) has no key at all.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError
from privacy.files import write_atomic

BYTES = 16
LARGEST = 256
FILE = "noise.key"
"""The name of a run's key in its private part."""


@dataclass(frozen=True, repr=False)
class NoiseStream:
    """This is a stream of simulated noise; it is used up as it is drawn from."""

    generator: np.random.Generator


@dataclass(frozen=True, repr=False)
class NoiseBase:
    """This is the key of many clients' simulated noise, of which each draws its own."""

    key: bytes

    def words(self, clients: npt.ArrayLike, size: int) -> npt.NDArray[np.uint64]:
        """Return two random words for each of `size` values of each client: uint64 [C, size, 2].

        They are AES-128 in counter mode, where the client is the upper half of the counter and the value the lower: a
        client's do not depend on who else is in the call, and those who know some learn nothing of others or the key.
        """
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        counters = np.empty((np.size(clients), size, 2), ">u8")
        counters[..., 0] = np.asarray(clients)[:, None]
        counters[..., 1] = np.arange(size)
        stream = Cipher(algorithms.AES(self.key), modes.ECB()).encryptor().update(counters.tobytes())
        return np.frombuffer(stream, "<u8").reshape(counters.shape)


@dataclass(frozen=True, repr=False)
class NoiseKey:
    """This is a run's secret of 128 random bits; it is not derived from the seed, and it is never exported.

    `of`: the digest of what it makes the noise of (empty: of nothing yet).

    >>> key = NoiseKey.new()
    >>> key == NoiseKey.new(), key.child("seed-1") == key.child("seed-1")
    (False, True)
    """

    secret: bytes
    of: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if len(self.secret) != BYTES:
            raise ValueError(f"a noise key has {BYTES} bytes, not {len(self.secret)}")

    @classmethod
    def new(cls) -> NoiseKey:
        """Return a new key, from the system's secure source."""
        return cls(secrets.token_bytes(BYTES))

    @classmethod
    def read(cls, path: str | Path) -> NoiseKey:
        """Return the key in a file of 32 hexadecimal digits, and below them what it belongs to, if it says so.

        Raises `InputError` for any other file.
        """
        try:
            with open(path, "rb") as file:
                text = file.read(LARGEST).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InputError(f"cannot read noise key {path}: {reason}; give the private/{FILE} of a run") from error
        found = re.fullmatch(r"([0-9a-f]{32})(?:\nof ([0-9a-f]{64}))?", text)
        if found is None:
            raise InputError(
                f"{path} is not a noise key, which has 32 hexadecimal digits; give the private/{FILE} of a run"
            )
        return cls(bytes.fromhex(found[1]), found[2] or "")

    def write(self, path: Path) -> None:
        """Write the key, readable by its owner alone."""
        write_atomic(path, f"{self.secret.hex()}\n" + (f"of {self.of}\n" if self.of else ""), mode=0o600)

    def bound(self, to: str) -> NoiseKey:
        """Return this key as that of what has the digest `to`. Raises `InputError` for one that is another's.

        Two results with the same noise differ by what they were made of alone: who has both takes the noise away.
        """
        if self.of not in ("", to):
            raise InputError(
                "this noise key has made the noise of another experiment, fleet or data set, from which this one's "
                "could be subtracted; leave the noise key out, or repeat exactly what it was made for"
            )
        return replace(self, of=to)

    def child(self, name: str) -> NoiseKey:
        """Return the key of a part, such as one run of many: another key for every name."""
        return NoiseKey(self._digest("child", name))

    def stream(self, seed: int, purpose: str, *path: int) -> NoiseStream:
        """Return the noise of a purpose, e.g. ``stream(seed, "noise item", round)``."""
        key = int.from_bytes(self._digest("stream", str(int(seed)), purpose, *map(_whole, path)), "little")
        return NoiseStream(np.random.Generator(np.random.Philox(key=key)))

    def base(self, seed: int, purpose: str, *path: int) -> NoiseBase:
        """Return what keys the noise of single clients for a purpose."""
        return NoiseBase(self._digest("base", str(int(seed)), purpose, *map(_whole, path)))

    def _digest(self, *parts: str) -> bytes:
        text = "/".join(f"{len(part)}:{part}" for part in parts)
        return hashlib.blake2b(text.encode(), key=self.secret, digest_size=BYTES).digest()


def _whole(number: int) -> str:
    return str(int(number))
