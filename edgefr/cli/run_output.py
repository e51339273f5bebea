"""A run of `edgefr simulate` ends with its first screen, or with all tables, its summary as JSON, or its path alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from edgefr.cli.output import say, show
from edgefr.config.progress import shown
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.simulation.runs.run import Run
    from privacy.progress import Progress


class Ending(StrEnum):
    """This is what is printed of runs that are done."""

    screen = "screen"
    full = "full"
    json = "json"
    quiet = "quiet"

    @classmethod
    def chosen(cls, **asked: bool) -> Ending:
        """Return the one that is asked for, the first screen where none is. Raises `InputError` for two."""
        names = [name for name, given in asked.items() if given]
        if len(names) > 1:
            raise InputError(f"--{names[0]} and --{names[1]} exclude each other; give one of them")
        return cls(names[0]) if names else cls.screen

    def progress(self) -> AbstractContextManager[Progress | None]:
        """Return what shows progress while the block runs; nothing where the path alone was asked for."""
        return nullcontext(None) if self is Ending.quiet else shown()

    def show(self, runs: Sequence[Run], place: Path) -> None:
        """Print one run, or those of several seeds in the folder `place`."""
        if self is Ending.quiet:
            typer.echo(str(place))
        elif self is Ending.json:
            typer.echo((place / "summary.json").read_text(encoding="utf-8"))
        elif self is Ending.full:
            _tables(runs, place)
        else:
            _screen(runs, place)


def _tables(runs: Sequence[Run], place: Path) -> None:
    from edgefr.report.tables import of_run, of_seeds

    summaries = [run.summary for run in runs]
    show(*(of_run(summaries[0]) if len(runs) == 1 else of_seeds(summaries)))
    say(f"{'run' if len(runs) == 1 else 'runs'}: {place}")


def _screen(runs: Sequence[Run], place: Path) -> None:
    from edgefr.report.screen import COLUMNS, first_screen, seeds_screen

    console = Console(soft_wrap=True, highlight=False)
    width = min(console.width, COLUMNS)
    summaries = [run.summary for run in runs]
    lines = first_screen(summaries[0], place, width) if len(runs) == 1 else seeds_screen(summaries, place, width)
    for line in lines:
        console.print(line)
