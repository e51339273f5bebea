"""`edgefr export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def export(
    run: Annotated[Path, typer.Option(help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Folder for the bundles, one per device class.")],
) -> None:
    """Pack what a run learned into one bundle per device class: ONNX graphs, item vectors, tokenizer, manifest."""
    from edgefr.report.tables import bundle_table, print_path
    from edgefr.run import Run
    from edgefr.shipping import export_run

    with shown() as progress:
        rows = export_run(Run.open(run), out, progress)
    console = Console()
    console.print(bundle_table(rows))
    print_path("bundles", out, console)
