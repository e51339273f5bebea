"""`edgefr report` writes the page of a run, of several, or of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or the folder of one sweep.")],
    out: Annotated[
        Path | None, typer.Option(help="The file. Default: report.html in the folder; of several runs, here.")
    ] = None,
) -> None:
    """Write a run's report again, as one HTML file that needs no network: to read, to print, to send to somebody.

    Several runs, or a folder with a run per seed, stand beside each other in one page; a sweep has a page of its own,
    with utility at each epsilon. Runs and sweeps write their report.html at their end; after `edgefr audit`, this
    command adds what the attacks reached.

    Example: `edgefr report runs/demo`

    Example: `edgefr report runs/demo runs/fedmf --out both.html`
    """
    from edgefr.studies.pages import write_report

    console = Console()
    console.print(f"wrote {write_report(runs, out)}", markup=False, highlight=False, soft_wrap=True)
