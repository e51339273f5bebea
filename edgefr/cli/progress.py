"""Progress is shown on a terminal: one bar per stage. Where nobody watches (a pipe, a log), nothing is printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.table import Column

from edgefr.prepare import Progress as Report


@contextmanager
def shown(console: Console | None = None) -> Iterator[Report]:
    """Yield a `progress(stage, done, total, note)` callable that draws bars while the block runs.

    Example: ``with shown() as progress: edgefr.simulate(experiment, progress=progress)``
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage, done, total, note: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<14}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeLeft(),
        TextColumn("[dim]{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)),  # what is left of the line
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, expand=True) as bars:

        def report(stage: str, done: int, total: int, note: str) -> None:
            if stage not in tasks or bars.tasks[tasks[stage]].total != total:
                tasks[stage] = bars.add_task(stage, total=total, note="")
            bars.update(tasks[stage], completed=done, note=note.replace("[", r"\["))

        yield report
