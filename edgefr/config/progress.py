"""Long work is shown where no bars can be drawn: as text that changes in a notebook, as log lines in a pipe.

Owns: what is said of work under way, and how often. Does not own: bars on a terminal (`cli.progress`), the work.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

if TYPE_CHECKING:
    from privacy.progress import Progress

Given = ParamSpec("Given")
Result = TypeVar("Result")
DOING = "starting"
FIRST = 2.0
"""Seconds of silence before the first line."""
SELDOM = 60.0
"""Seconds between two lines of work that takes hours."""
MOST_STAGES = 12
AGAIN = 0.5
"""Seconds between two changes of a notebook's text."""


def duration(seconds: float) -> str:
    """Write seconds in words.

    >>> duration(42), duration(200), duration(7300)
    ('42 s', '3 min', '2 h 2 min')
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Standing:
    """This keeps what long work said last of each of its stages."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.began = time.monotonic()
        self.stages: dict[str, str] = {}

    def report(self, stage: str, done: int, total: int, note: str) -> None:
        """Keep what a stage said; the newest one is the last."""
        self.stages.pop(stage, None)
        self.stages[stage] = f"{stage} {done:,}/{total:,}{f': {note}' if note else ''}"

    @property
    def seconds(self) -> float:
        """Return how long the work has been under way."""
        return time.monotonic() - self.began

    def lines(self) -> list[str]:
        """Return a line of each of the last stages, the newest last; what is being done where there is none yet."""
        return list(self.stages.values())[-MOST_STAGES:] or [self.doing]

    def line(self) -> str:
        """Return the newest line with the time so far."""
        return f"[{duration(self.seconds)}] {self.lines()[-1]}"


@contextmanager
def logged(stream: TextIO | None = None, doing: str = DOING, first: float = FIRST) -> Iterator[Progress]:
    """Yield a `progress` whose newest line is written to a stream (default: stderr) from time to time.

    The first line after `first` seconds, and then the more seldom the longer the work takes: a fifth of the time so
    far, and a minute at most. So work that says nothing for long is seen to go on.
    """
    to = sys.stderr if stream is None else stream
    standing, over = Standing(doing), threading.Event()

    def tell() -> None:
        wait = first
        while not over.wait(wait):
            print(standing.line(), file=to, flush=True)
            wait = min(max(first, standing.seconds / 5), SELDOM)

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield standing.report
    finally:
        over.set()
        teller.join()


def in_notebook() -> bool:
    """Say whether this process is the kernel of a notebook, whose output can be changed after it was shown."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def displayed(doing: str = DOING) -> Iterator[Progress]:
    """Yield a `progress` that is shown below a notebook's cell: one text, changed as the work goes on."""
    from IPython.display import display

    standing = Standing(doing)
    handle = display({"text/plain": doing}, raw=True, display_id=True)
    last = 0.0

    def change() -> None:
        text = "\n".join([*standing.lines(), duration(standing.seconds)])
        handle.update({"text/plain": text}, raw=True)

    def report(stage: str, done: int, total: int, note: str) -> None:
        nonlocal last
        standing.report(stage, done, total, note)
        if time.monotonic() - last > AGAIN:
            last = time.monotonic()
            change()

    try:
        yield report
    finally:
        change()


def of_runs(progress: Progress) -> Callable[[Any], None]:
    """Return what tells of the runs of a sweep: its `watch`."""

    def watch(standing: Any) -> None:
        failed = f"{standing.failed} failed" if standing.failed else ""
        progress("runs", len(standing.entries), standing.total, failed)

    return watch


def _as_it_is(progress: Progress) -> Any:
    return progress


def watched(
    argument: str = "progress", made_of: Callable[[Progress], Any] = _as_it_is
) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Show a function's work in a notebook, unless its caller watches it by `argument`, which is `made_of` a progress.

    >>> @watched()
    ... def count(to: int, *, progress=None) -> int:
    ...     return to
    >>> count(3)
    3
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            if kwargs.get(argument) is not None or not in_notebook():
                return function(*args, **kwargs)
            with displayed() as progress:
                kwargs[argument] = made_of(progress)
                return function(*args, **kwargs)

        return call

    return decorate
