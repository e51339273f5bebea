"""The thread of an open round tells how many answers there are, whenever that has changed.

Only that thread tells, without the lock that devices' requests need: a terminal that is slow holds up
no device, and whoever asks for work costs nothing here.

Owns: what is said of an open round, and when. Does not own: how it is shown (`edgefr.config.progress`), when a round is
over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privacy.progress import Progress

STAGE = "answers"
Tell = Callable[[int, int, str], None]
"""Hears how many answers of a round are there, of how many, and what else there is to say of it."""


def untold(there: int, of: int, more: str = "") -> None:
    """Tell nobody."""


def telling(progress: Progress | None, number: int, fewest: int) -> Tell:
    """Return what tells `progress` of round `number`, of which nothing is published with fewer answers than `fewest`.

    >>> telling(print, 2, 18)(5, 36, "")
    answers 5 36 round 2, 18 needed
    """
    if progress is None:
        return untold

    def tell(there: int, of: int, more: str) -> None:
        progress(STAGE, there, of, f"round {number}, {fewest} needed{more}")

    return tell


def awaited(
    changed: threading.Condition,
    over: Callable[[], bool],
    count: Callable[[], int],
    timeout_s: float,
    tell: Callable[[int], None],
) -> None:
    """Wait until it is `over`, no longer than `timeout_s`; `tell` hears of every other `count`, without the lock."""
    until, said = time.monotonic() + timeout_s, -1

    def new() -> bool:
        return over() or count() != said

    while True:
        with changed:
            changed.wait_for(new, until - time.monotonic())
            if over() or time.monotonic() >= until:
                return
            said = count()
        tell(said)
