"""Work far below a command can say what it is doing: to whoever listens, and otherwise to nobody."""

from __future__ import annotations

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
