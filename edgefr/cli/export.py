"""`edgefr export` writes a run's bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def export(
    run: Annotated[Path, typer.Option(help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Folder for the bundles, one per device class.")],
    expires_days: Annotated[
        int | None, typer.Option(min=1, help="Devices refuse the bundles so many days after the run was made.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private key (PEM) to sign them with; see edgefr bundle.")] = None,
    zipped: Annotated[
        bool, typer.Option("--zip", help="Write each bundle as one zip file too, beside its folder.")
    ] = False,
) -> None:
    """Pack what a run learned into one bundle per device class: ONNX graphs, item vectors, tokenizer, manifest."""
    from edgefr.report.tables import bundle_table, print_path
    from edgefr.run import Run
    from edgefr.shipping import export_run
    from export.archive import pack
    from export.sign import load_private, sign_bundle

    if key is not None:
        load_private(key)  # before the work, not after it
    with shown() as progress:
        rows = export_run(Run.open(run), out, progress, expires_days)
    for folder in (Path(row["path"]) for row in rows):
        if key is not None:
            sign_bundle(folder, key)
        if zipped:
            pack(folder, folder.with_name(f"{folder.name}.zip"))
    console = Console()
    console.print(bundle_table(rows))
    print_path("bundles", out, console)
