"""Real noise is exact: discrete Gaussian and Laplace draws from the system's random bits, by whole numbers alone.

Samplers that compute in floating point give noise away in the last bits of what they release (Mironov, CCS 2012). Here
nothing is rounded, so the law of a draw is the law that is accounted for, and no two runs draw alike. Both laws are
drawn in one way (Karney 2016, Algorithm D; Canonne, Kamath & Steinke 2020, Algorithms 1 to 3), with whole scale s:

    size = block * s + place     block from its own law, which does not depend on s; place uniform in 0 .. s - 1
    Laplace:   block with P proportional to exp(-block), place kept with probability exp(-place / s): together
               exp(-size / s)
    Gaussian:  block with P proportional to exp(-block**2 / 2), place kept with probability
               exp(-block * place / s) * exp(-place**2 / (2 s**2)): together exp(-size**2 / (2 s**2))
    then a fair sign, and minus zero is thrown away, or zero would come twice as often.
"""

from __future__ import annotations

import functools
import operator
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

__all__ = ["LARGEST", "Bits", "discrete_gaussian", "discrete_laplace", "system_bits"]

LARGEST = 1 << 24
"""Of a scale in steps: 2 s**2 <= 2**49, so what is multiplied below stays under 2**63 (see `_below`)."""
CHUNK = 1 << 14
"""Draws that are made at once: a few MB of working memory, however many are asked for."""
WORD = 64
GUARD = 64

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Bits:
    """These are the operating system's random bits. Nothing seeded is of this type; tests derive one that they feed."""

    def words(self, count: int) -> Words:
        """Return `count` random words of 64 bits: uint64 [count]. Nothing is kept for later, so forks never share."""
        return np.frombuffer(os.urandom(count * 8), dtype=np.uint64)


system_bits = Bits()


def discrete_gaussian(sigma: int, size: int, bits: Bits = system_bits) -> Ints:
    """Return exact draws with P(k) proportional to exp(-k**2 / (2 sigma**2)): int64 [size].

    `sigma`: in whole steps of the grid, 1 to 2**24. Raises `InputError` for any other.

    >>> discrete_gaussian(1000, 5).shape
    (5,)
    """
    scale = _whole(sigma, "sigma")

    def kept(block: Words, place: Words) -> Flags:
        keep = _survives(place * place, 2 * scale * scale, bits)  # place**2 < 2**48
        for passed in range(int(block.max(initial=0))):
            again = np.flatnonzero(keep & (block > passed))
            keep[again] = _survives(place[again], scale, bits)
        return keep

    return _draws("gaussian", scale, size, bits, kept)


def discrete_laplace(scale: int, size: int, bits: Bits = system_bits) -> Ints:
    """Return exact draws with P(k) proportional to exp(-|k| / scale): int64 [size].

    `scale`: in whole steps of the grid, 1 to 2**24. Raises `InputError` for any other.

    >>> discrete_laplace(3, 5).dtype
    dtype('int64')
    """
    whole = _whole(scale, "scale")
    return _draws("laplace", whole, size, bits, lambda _, place: _survives(place, whole, bits))


def _whole(scale: int, name: str) -> int:
    try:
        found = operator.index(scale)
    except TypeError:
        found = 0
    if isinstance(scale, bool | np.bool_) or not 1 <= found <= LARGEST:
        raise InputError(
            f"{name} of exact noise must be a whole number of grid steps from 1 to {LARGEST}, got {scale}: "
            "choose another privacy.grid_exponent"
        )
    return found


Law = Literal["gaussian", "laplace"]


def _draws(law: Law, scale: int, size: int, bits: Bits, kept: Callable[[Words, Words], Flags]) -> Ints:
    """Return `size` draws: proposals are independent, so the first that are kept are independent draws of the law."""
    if not isinstance(bits, Bits):
        raise TypeError(f"exact noise is drawn from privacy.exact.Bits alone, not from {type(bits).__name__}")
    if operator.index(size) < 0:
        raise ValueError(f"a number of draws cannot be negative, got {size}")
    out, filled = np.empty(size, dtype=np.int64), 0
    while filled < size:
        count = min(CHUNK, 2 * (size - filled) + 8)
        block = _blocks(law, count, bits)
        signed = _below(2 * scale, count, bits)  # a place and, in its last bit, a sign
        place, negative = signed >> np.uint64(1), (signed & np.uint64(1)).astype(np.bool_)
        keep = kept(block, place)
        found = (block * np.uint64(scale) + place).astype(np.int64)  # below 2**63 but with P < exp(-2**38)
        keep &= (found != 0) | ~negative
        found = np.where(negative, -found, found)[keep][: size - filled]
        out[filled : filled + len(found)] = found
        filled += len(found)
    return out


def _below(bound: int, count: int, bits: Bits) -> Words:
    """Return uniform whole numbers from 0 to `bound` - 1: uint64 [count].

    2**64 words are cut into `bound` equally long pieces; a word of what is left over (less than `bound`) is drawn anew.
    """
    if not 1 <= bound < 1 << (WORD - 1):
        raise OverflowError(f"no uniform numbers below {bound} here")
    piece = np.uint64(((1 << WORD) - 1) // bound)
    out = bits.words(count) // piece
    while len(left := np.flatnonzero(out >= bound)):
        out[left] = bits.words(len(left)) // piece
    return out


def _survives(numerator: Words, denominator: int, bits: Bits) -> Flags:
    """Say for each with probability exp(-numerator / denominator), 0 <= numerator <= denominator: bool, same length.

    Canonne, Kamath & Steinke 2020, Algorithm 1: with x = numerator / denominator, events of probability x / 1, x / 2,
    x / 3, ... are drawn until one fails; its number is odd with probability 1 - x + x**2 / 2! - ... = exp(-x). The
    n-th is reached with probability x**(n-1) / (n-1)!, so `denominator` * n <= 2**49 * n never meets the bound of
    `_below`, 2**63: that would take 2**14 events (probability below 10**-60000), and would stop instead of go wrong.
    """
    out = np.empty(len(numerator), dtype=np.bool_)
    going, number = np.arange(len(numerator)), 1
    while len(going):
        out[going] = number % 2 == 1
        again = _below(denominator * number, len(going), bits) < numerator
        going, numerator, number = going[again], numerator[again], number + 1
    return out


def _blocks(law: Law, count: int, bits: Bits) -> Words:
    """Return draws of the block's law by inversion: uint64 [count].

    A word is the first 64 binary digits of a uniform number. It says how many thresholds lie below that number, unless
    it equals the first digits of one: then, and only then, further digits are drawn (`_undecided`).
    """
    words = bits.words(count)
    table = np.array(_thresholds(law, WORD), dtype=np.uint64)
    out = table.searchsorted(words, side="right")
    for at in np.flatnonzero((out > 0) & (table[out - 1] == words)):
        out[at] = _undecided(law, int(words[at]), bits)
    return out.astype(np.uint64)


def _undecided(law: Law, digits: int, bits: Bits) -> int:
    """Return the block of a uniform number whose first 64 binary digits do not decide it."""
    places = WORD
    while True:
        digits, places = digits << WORD | int(bits.words(1)[0]), places + WORD
        table = _thresholds(law, places)
        found = bisect_right(table, digits)
        if not found or table[found - 1] != digits:
            return found


@functools.cache
def _thresholds(law: Law, places: int) -> tuple[int, ...]:
    """Return the first `places` binary digits of P(block <= n) for n = 0, 1, ... up to the first that are all ones.

    Each probability is enclosed between whole numbers; digits beyond `places` are added until both ends agree.
    """
    halves: Callable[[int], int] = {"gaussian": lambda n: n * n, "laplace": lambda n: 2 * n}[law]  # exp(-halves / 2)
    guard = GUARD
    while True:
        unit = places + guard
        weights: list[tuple[int, int]] = []
        last = 0
        while not weights or weights[-1][1] > 1:  # each is below half of the one before: what follows weighs < 2
            weights.append(_exp_minus(halves(last), unit))
            last += 1
        low, high = [weight for weight, _ in weights], [weight for _, weight in weights]
        out = []
        for n in range(1, last):
            least, most = sum(low[:n]), sum(high[:n])
            first = (least << places) // (least + sum(high[n:]) + 2)
            if first != (most << places) // (most + sum(low[n:])):
                break
            out.append(first)
            if first == (1 << places) - 1:
                return tuple(out)
        guard *= 2


def _exp_minus(halves: int, unit: int) -> tuple[int, int]:
    """Return whole numbers that enclose exp(-halves / 2) * 2**unit."""
    if not halves:
        return 1 << unit, 1 << unit
    top, bottom = 1, 1
    for n in range(unit | 1, 0, -1):  # exp(-1 / 2) = 1 - (1 / 2) (1 - (1 / 4) (1 - (1 / 6) (...))), exact fractions
        top, bottom = 2 * n * bottom - top, 2 * n * bottom
    low = (top << unit) // bottom  # an odd number of terms after the 1: the sum lies below, by less than 2**-unit
    high, shift = low + 2, unit * (halves - 1)
    return low**halves >> shift, -(-(high**halves) >> shift)
