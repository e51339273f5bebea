"""A sweep is shown on a terminal while it runs: a line per point, and when it may be done; elsewhere as log lines."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from edgefr.config.progress import duration, of_runs, shown
from edgefr.studies.sweeps.results import SweepRun, main_metric, validation
from edgefr.studies.sweeps.run import Standing, Watch


@contextmanager
def progress_table(console: Console | None = None) -> Iterator[Watch]:
    """Yield a `watch(standing)` that draws the sweep while the block runs.

    Example: ``with progress_table() as watch: Sweep(plan, folder, watch=watch).run()``
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        with shown(console) as progress:
            yield of_runs(progress)
        return
    began, last = time.monotonic(), Standing(0, 1)

    def watch(standing: Standing) -> None:
        nonlocal last
        last = standing

    def now() -> Group:
        return drawn(last, time.monotonic() - began, console.height - 6)

    with Live(get_renderable=now, console=console, refresh_per_second=2, transient=True):
        yield watch


def drawn(standing: Standing, seconds: float, lines: int) -> Group:
    """The state of a sweep after so many `seconds`, the latest points first where there are more than `lines`."""
    rows: dict[str, list[SweepRun]] = {}
    for entry in reversed(standing.entries):
        rows.setdefault(entry.point.title(), []).append(entry)
    table = Table(box=None, pad_edge=False)
    table.add_column("point", overflow="ellipsis", no_wrap=True)
    for name in ("done", "failed", "validation", "best"):
        table.add_column(name, justify="right")
    for title, entries in list(rows.items())[: max(lines, 1)]:
        found = [value for value in map(_validated, entries) if not math.isnan(value)]
        cells = [f"{sum(found) / len(found):.4f}", f"{max(found):.4f}"] if found else ["-", "-"]
        lost = sum(entry.summary is None for entry in entries)
        table.add_row(Text(title), str(len(entries) - lost), str(lost or "-"), *cells)
    left = standing.seconds_left
    when = "" if left is None else f", about {duration(left)} left"
    failed = f", {standing.failed} failed" if standing.failed else ""
    head = f"{len(standing.entries)} of {standing.total} runs{failed}, {duration(seconds)} so far{when}"
    over = Table.grid(padding=(0, 2))
    over.add_row(ProgressBar(standing.total, len(standing.entries), width=20), Text(head))
    return Group(over, *([Text(standing.doing, style="dim")] if standing.doing else []), table)


def _validated(entry: SweepRun) -> float:
    return math.nan if entry.summary is None else validation(entry.summary, main_metric(list(entry.summary["metrics"])))
