"""Keyed randomness: every random number is a pure function of (seed, purpose, path, index).

There is no generator whose state moves along. A *key* is a 64-bit number made from the seed, a purpose such
as ``"negatives"`` and any whole numbers (round, epoch, ...). `fold` gives every client a key of its own, and
the i-th number of a key is a hash of (key, i). So any client of any round can be re-run alone, in any order
and on any number of workers, and draws the same numbers.

The hash is SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): a Weyl sequence through a mixing function with full
avalanche. It runs backwards, so who knows one number of a key knows them all: nothing secret is drawn by it, and
noise least of all (`noise_key`), which shares with it only what numbers are made of random words.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

UInts = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_PIECE = 1 << 16
"""Members whose draws stay in a processor's cache."""

_WEYL = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(x: UInts) -> UInts:
    """Apply SplitMix64's finaliser, in place."""
    x ^= x >> np.uint64(30)
    x *= _MIX_1
    x ^= x >> np.uint64(27)
    x *= _MIX_2
    x ^= x >> np.uint64(31)
    return x


def key(seed: int, purpose: str, *path: int) -> int:
    """The 64-bit key of a purpose, e.g. ``key(seed, "negatives", round, epoch)``.

    >>> key(0, "cohort", 3) == key(0, "cohort", 3), key(0, "cohort", 3) == key(0, "cohort", 4)
    (True, False)
    """
    text = "/".join([str(int(seed)), purpose, *(str(int(p)) for p in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def fold(base: int, ids: npt.ArrayLike) -> UInts:
    """Make one key per id (client, item, ...): shape of `ids`, uint64."""
    return bits(np.uint64(base), ids)


def bits(keys: npt.ArrayLike, index: npt.ArrayLike) -> UInts:
    """Return the `index`-th 64 random bits of each key; the two broadcast against each other."""
    with np.errstate(over="ignore"):
        x = (np.asarray(index).astype(np.uint64) + np.uint64(1)) * _WEYL
        x = np.atleast_1d(x + np.asarray(keys, dtype=np.uint64))
        out = _mix(x)
    return out.reshape(np.broadcast_shapes(np.shape(keys), np.shape(index)))


def integers(keys: npt.ArrayLike, index: npt.ArrayLike, bound: npt.ArrayLike) -> Ints:
    """Draw whole numbers in [0, bound), bound < 2**31; bias below bound / 2**32.

    >>> integers(key(0, "doctest"), np.arange(4), 10).tolist()
    [8, 5, 1, 7]
    """
    high = bits(keys, index) >> np.uint64(32)
    return ((high * np.asarray(bound).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def uniform(keys: npt.ArrayLike, index: npt.ArrayLike) -> Floats:
    """Draw numbers in [0, 1) with 53 random bits."""
    return as_uniform(bits(keys, index))


def normal(keys: npt.ArrayLike, index: npt.ArrayLike) -> Floats:
    """Draw standard normal numbers, of two sub-streams of each key."""
    doubled = np.asarray(index).astype(np.uint64) * np.uint64(2)
    return as_normal(bits(keys, doubled), bits(keys, doubled + np.uint64(1)))


def as_uniform(words: UInts) -> Floats:
    """Make numbers in [0, 1) of the high 53 bits of random words."""
    return np.multiply(words >> np.uint64(11), 2.0**-53, dtype=np.float64)


def as_normal(first: UInts, second: UInts) -> Floats:
    """Make standard normal numbers of pairs of random words (Box-Muller)."""
    radius, turn = np.asarray(as_uniform(first)), np.asarray(as_uniform(second))
    np.log1p(np.negative(radius, out=radius), out=radius)
    np.sqrt(np.multiply(radius, -2.0, out=radius), out=radius)
    np.cos(np.multiply(turn, 2.0 * np.pi, out=turn), out=turn)
    return np.multiply(radius, turn, out=radius)


def as_laplace(words: UInts) -> Floats:
    """Make standard Laplace numbers (b = 1) of random words: magnitude of the high 53 bits, sign of the lowest."""
    out = np.multiply(words >> np.uint64(11), -(2.0**-53), dtype=np.float64)
    np.log1p(out, out=out)
    return np.negative(out, out=out, where=words & np.uint64(1) == 0)


def choose(base: int, population: npt.ArrayLike, count: int) -> Ints:
    """`count` members of `population` without replacement, uniformly, sorted.

    Every member draws its own 64 bits and the smallest `count` win, so a member's draw does not depend on the others.
    """
    members = np.asarray(population, dtype=np.int64)
    if count >= len(members):
        return np.sort(members)
    likely = (count + 8 * math.sqrt(count) + 16) / len(members)  # a share of all draws that hardly misses one that wins
    if likely < 0.5 and len(members) > _PIECE:
        bound, pieces = np.uint64(int(likely * 2**64)), np.split(members, range(_PIECE, len(members), _PIECE))
        near = np.concatenate([piece[fold(base, piece) < bound] for piece in pieces])  # each while it is in cache
        members = near if len(near) > count else members
    draws = fold(base, members)
    return np.sort(members[np.argpartition(draws, count)[:count]])


def generator(seed: int, purpose: str, *path: int) -> np.random.Generator:
    """Return a numpy generator for one purpose, where a stream is wanted (bulk noise, generated data): Philox."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *path)))
