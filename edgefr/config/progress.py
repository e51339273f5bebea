"""Long work is shown: on a terminal as a bar per stage, in a notebook as text that changes, elsewhere as log lines.

Owns: what is said of work under way, where, and how often. Does not own: the work.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

    from privacy.progress import Progress

Given = ParamSpec("Given")
Result = TypeVar("Result")
DOING = "starting"
FIRST, SELDOM = 2.0, 60.0
"""Seconds of silence before the first line, and the most between two lines."""
AGAIN = 0.5
"""Seconds between two changes of a notebook's text."""
MOST_STAGES = 12


def duration(seconds: float) -> str:
    """Write seconds in words.

    >>> duration(42), duration(200), duration(7300)
    ('42 s', '3 min', '2 h 2 min')
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def shown(console: Console | None = None, doing: str = DOING) -> AbstractContextManager[Progress]:
    """Return a context whose `progress(stage, done, total, note)` is shown on the console (default: stderr).

    `doing` is said before the first stage, and all along of work that has none.

    Example: ``with shown() as progress: edgefr.simulate(experiment, progress=progress)``
    """
    from rich.console import Console

    console = console or Console(stderr=True)
    if console.is_terminal:
        return bars(console, doing)
    return displayed(doing) if in_notebook() else logged(console.file, doing)


@contextmanager
def bars(console: Console, doing: str = DOING) -> Iterator[Progress]:
    """Yield a `progress` that draws a bar per stage, and a moving one before the first stage."""
    from rich import progress as parts
    from rich.table import Column

    columns = (parts.SpinnerColumn(), parts.TextColumn("{task.description:<14}"), parts.BarColumn(bar_width=12))
    counts = (parts.MofNCompleteColumn(), parts.TimeElapsedColumn(), parts.TimeRemainingColumn())
    rest = parts.TextColumn("[dim]{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True))
    with parts.Progress(*columns, *counts, rest, console=console, expand=True) as drawn:
        starting = drawn.add_task(doing, total=None, note="")
        tasks: dict[str, parts.TaskID] = {}

        def report(stage: str, done: int, total: int, note: str) -> None:
            if stage not in tasks or drawn.tasks[tasks[stage]].total != total:
                drawn.update(starting, visible=False)
                tasks[stage] = drawn.add_task(stage, total=total, note="")
            drawn.update(tasks[stage], completed=done, note=note.replace("[", r"\["))

        try:
            yield report
        finally:
            drawn.update(starting, visible=False)


class _Standing:
    """This keeps what long work said last of each of its stages."""

    def __init__(self, doing: str) -> None:
        self.doing, self.began = doing, time.monotonic()
        self.stages: dict[str, str] = {}

    def report(self, stage: str, done: int, total: int, note: str) -> None:
        self.stages.pop(stage, None)
        self.stages[stage] = f"{stage} {done:,}/{total:,}{f': {note}' if note else ''}"  # the newest is the last

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def lines(self) -> list[str]:
        return list(self.stages.values())[-MOST_STAGES:] or [self.doing]


@contextmanager
def logged(stream: Any = None, doing: str = DOING, first: float = FIRST) -> Iterator[Progress]:
    """Yield a `progress` whose newest line is written to a stream (default: stderr) from time to time.

    The first line after `first` seconds, and then the more seldom the longer the work takes: a fifth of the time so
    far, and a minute at most. So work that says nothing for long is seen to go on.
    """
    to: TextIO = stream or sys.stderr
    standing, over = _Standing(doing), threading.Event()

    def tell() -> None:
        wait = first
        while not over.wait(wait):
            print(f"[{duration(standing.seconds)}] {standing.lines[-1]}", file=to, flush=True)
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

    standing, changed = _Standing(doing), 0.0
    handle = display({"text/plain": doing}, raw=True, display_id=True)

    def change() -> None:
        handle.update({"text/plain": "\n".join([*standing.lines, duration(standing.seconds)])}, raw=True)

    def report(*said: Any) -> None:
        nonlocal changed
        standing.report(*said)
        if time.monotonic() - changed > AGAIN:
            changed = time.monotonic()
            change()

    try:
        yield report
    finally:
        change()


def of_runs(progress: Progress) -> Callable[[Any], None]:
    """Return what tells of the runs of a sweep: its `watch`."""

    def told(standing: Any) -> None:
        failed = f"{standing.failed} failed" if standing.failed else ""
        note = ", ".join(part for part in (failed, standing.doing) if part)
        progress("runs", len(standing.entries), standing.total, note)

    return told


def watched(
    argument: str = "progress", made_of: Callable[[Progress], Any] = lambda progress: progress
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
