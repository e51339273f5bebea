"""Users and items are numbered by their ids, never by who had what or when.

Numbers are shipped: a bundle lists items in their order, and tables have a row for each. Numbered by a log that is
sorted by user, the first rows would be one person's history.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.str_]

_DIGITS = "0123456789"
_FITS = 18  # decimal digits that every int64 holds


def id_order(ids: Texts, after: Texts | None = None) -> Ints:
    """Return the order of ids, int64 [n]: by the text before the digits at the end, then by their number, then as text.

    `after` [n] decides between equal ids.

    >>> ids = np.array(["10", "b2", "9", "b10", "a"])
    >>> ids[id_order(ids)].tolist()
    ['9', '10', 'a', 'b2', 'b10']
    """
    if not len(ids) or _are_numbers(ids):
        numbers = ids.astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        if (np.diff(numbers[order]) != 0).all():
            return order
    before = np.char.rstrip(ids, _DIGITS)
    ends = [one[len(head) :] for one, head in zip(ids.tolist(), before.tolist(), strict=True)]
    number = np.char.lstrip(np.array(ends), "0")
    last = () if after is None else (after,)
    return np.lexsort((*last, ids, number, np.char.str_len(number), before))


def places(order: Ints) -> Ints:
    """Return where each number stands in an order of all of them, int64 [n].

    >>> places(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _are_numbers(ids: Texts) -> bool:
    length = np.char.str_len(ids)
    return bool(length.min() > 0 and length.max() <= _FITS and (np.char.strip(ids, _DIGITS) == "").all())
