"""Work far below a command can say what it is doing: to whoever listens, and otherwise to nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int, str], None]
"""What is called with a stage, how much of it is done, how much there is, and a note."""
_HEARD: list[Progress] = []
"""Who is told of asides, the newest listener last."""


@contextmanager
def heard(progress: Progress | None) -> Iterator[None]:
    """Tell `progress` of asides while the block runs: of work that its caller did not ask for, such as compiling."""
    if progress is None:
        yield
        return
    _HEARD.append(progress)
    try:
        yield
    finally:
        _HEARD.remove(progress)


def aside(stage: str, done: int, total: int, note: str) -> None:
    """Say what work far below a command is doing, to whoever listens by `heard`.

    >>> told = []
    >>> with heard(lambda *said: told.append(said)):
    ...     aside("compile", 1, 2, "machine code")
    >>> told
    [('compile', 1, 2, 'machine code')]
    """
    for progress in _HEARD[-1:]:
        progress(stage, done, total, note)


class Stopwatch:
    """This counts the `seconds` of its blocks; one within another counts once.

    >>> watch = Stopwatch()
    >>> with watch:
    ...     with watch:
    ...         pass
    >>> 0 < watch.seconds < 1
    True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._within, self._since = 0, 0.0

    def __enter__(self) -> None:
        if not self._within:
            self._since = time.perf_counter()
        self._within += 1

    def __exit__(self, *raised: object) -> None:
        self._within -= 1
        if not self._within:
            self.seconds += time.perf_counter() - self._since


MACHINE_CODE = Stopwatch()
"""Seconds that this process took to make or read machine code."""


def working() -> float:
    """Return a clock's seconds, which stands still while machine code is made or read: no work is charged for that."""
    return time.perf_counter() - MACHINE_CODE.seconds
