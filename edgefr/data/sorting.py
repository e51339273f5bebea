"""This module finds orders of whole numbers by sorting plain numbers, several times faster than argsort.

A number and its place are packed into one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def packed(numbers: Ints, bound: int) -> tuple[Ints, int] | None:
    """Return (codes, bits): every number [n] above `bits` bits of its place, sorted; None beyond 63 bits.

    `numbers` lie in [0, bound). Equal numbers keep their order.

    >>> codes, bits = packed(np.array([3, 1, 3]), 4)
    >>> (codes >> bits).tolist(), (codes & (1 << bits) - 1).tolist()
    ([1, 3, 3], [1, 0, 2])
    """
    bits = max(len(numbers) - 1, 0).bit_length()
    if max(bound - 1, 0).bit_length() + bits > 63:
        return None
    codes = numbers << bits
    codes |= np.arange(len(numbers))
    codes.sort()
    return codes, bits


def stable_order(numbers: Ints, bound: int) -> Ints:
    """Return the stable order that sorts `numbers` in [0, bound), int64 [n].

    >>> stable_order(np.array([3, 1, 3]), 4).tolist()
    [1, 0, 2]
    """
    found = packed(numbers, bound)
    if found is None:
        return np.argsort(numbers, kind="stable")
    codes, bits = found
    codes &= (1 << bits) - 1
    return codes


def repeats(numbers: Ints, bound: int) -> Ints:
    """Return the places of numbers in [0, bound) that stand further left already, by number and place.

    >>> repeats(np.array([3, 1, 3, 3]), 4).tolist()
    [2, 3]
    """
    found = packed(numbers, bound)
    if found is None:
        order = np.argsort(numbers, kind="stable")
        return order[1:][numbers[order[1:]] == numbers[order[:-1]]]
    codes, bits = found
    value = codes >> bits
    return codes[1:][value[1:] == value[:-1]] & ((1 << bits) - 1)


def first_of(numbers: Ints) -> npt.NDArray[np.bool_]:
    """Say which numbers stand nowhere further left, bool [n].

    >>> first_of(np.array([3, 1, 3])).tolist()
    [True, True, False]
    """
    ascending = np.sort(numbers)
    if not (ascending[1:] == ascending[:-1]).any():  # the common case, without the slower sort below
        return np.ones(len(numbers), bool)
    first = np.zeros(len(numbers), bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first
