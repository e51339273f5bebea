"""Progress is shown on a terminal as a bar per stage, in a notebook as text that changes, elsewhere as log lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from edgefr.config.progress import DOING, displayed, in_notebook, logged

if TYPE_CHECKING:
    from privacy.progress import Progress as Report


@contextmanager
def shown(console: Console | None = None, doing: str = DOING) -> Iterator[Report]:
    """Yield a `progress(stage, done, total, note)` callable that is shown while the block runs.

    `doing`: what is said before the first stage, and all along of work that has none.

    Example: ``with shown() as progress: edgefr.simulate(experiment, progress=progress)``
    """
    console = console or Console(stderr=True)
    if console.is_terminal:
        with bars(console, doing) as report:
            yield report
    elif in_notebook():
        with displayed(doing) as report:
            yield report
    else:
        with logged(console.file, doing) as report:  # type: ignore[arg-type]
            yield report


@contextmanager
def bars(console: Console, doing: str = DOING) -> Iterator[Report]:
    """Yield a `progress` that draws a bar per stage, and one that is seen to move before the first stage."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<14}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)),  # what is left of the line
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, expand=True) as drawn:
        starting = drawn.add_task(doing, total=None, note="")

        def report(stage: str, done: int, total: int, note: str) -> None:
            if stage not in tasks or drawn.tasks[tasks[stage]].total != total:
                drawn.update(starting, visible=False)
                tasks[stage] = drawn.add_task(stage, total=total, note="")
            drawn.update(tasks[stage], completed=done, note=note.replace("[", r"\["))

        try:
            yield report
        finally:
            drawn.update(starting, visible=False)
