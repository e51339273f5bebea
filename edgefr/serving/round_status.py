"""The thread of an open round tells how many answers there are, whenever that has changed.

It tells without the lock that requests need, so a slow terminal delays no device.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privacy.progress import Progress

STAGE = "answers"
Tell = Callable[[int, int, str], None]
"""Hears how many answers of a round are there, of how many, and what else there is to say of it."""


def untold(there: int, of: int, more: str = "") -> None: ...


def telling(progress: Progress | None, number: int, fewest: int) -> Tell:
    """Return a function that tells `progress` of round `number`, which needs `fewest` answers."""
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
    from_first: bool = False,
) -> None:
    """Wait until it is `over` or for `timeout_s`; `tell` hears of each new `count`, without the lock.

    `from_first`: the time begins when there is something to count, and until then whoever waits waits on.
    """
    until, said = math.inf if from_first else time.monotonic() + timeout_s, -1

    def new() -> bool:
        return over() or count() != said

    while True:
        with changed:
            changed.wait_for(new, None if until == math.inf else until - time.monotonic())
            if over() or time.monotonic() >= until:
                return
            said = count()
        if said and until == math.inf:
            until = time.monotonic() + timeout_s
        tell(said)
