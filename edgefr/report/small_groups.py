"""No page, screen or summary has a figure of a few people: this is the one rule for it, and the words it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FEWEST = 10
"""People of whom a figure is at least."""
FEW = f"fewer than {FEWEST} users"
"""What stands in the place of a figure."""
WHY = f"{FEW}: figures of so few people, and figures that would reveal them by subtraction, are withheld"


def tellable(people: Sequence[int]) -> list[bool]:
    """Say which groups of all people have figures that may stand beside that of everybody.

    All less the groups that are told is a figure of the others together. Where these are too few the smallest that is
    told is left out, too.

    >>> tellable([30, 12, 9]), tellable([30, 6, 5]), tellable([30, 12])
    ([True, False, False], [True, False, False], [True, True])
    """
    told = [number >= FEWEST for number in people]
    while 0 < sum(number for number, one in zip(people, told, strict=True) if not one) < FEWEST and any(told):
        told[min((number, at) for at, number in enumerate(people) if told[at])[1]] = False
    return told


def of_few(summaries: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether any of these runs tested so few users that its own figures are of a few people."""
    found = (record for one in summaries for split in one.get("learning", {}).values() for record in split.values())
    return any(record["users"] < FEWEST for record in found)
