"""`edgefr export` writes a run's bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from edgefr.cli.output import say, show
from edgefr.config.progress import shown
from privacy.errors import InputError


def export(
    folder: Annotated[
        Path | None, Argument(metavar="RUN", help="Folder of a finished run.", show_default=False)
    ] = None,
    run: Annotated[Path | None, Option(help="The same folder, as an option.")] = None,
    out: Annotated[
        Path | None, Option(help="Folder for the bundles, one per device class. Default: in the run.")
    ] = None,
    expires_days: Annotated[
        int, Option(min=1, help="Devices refuse the bundles so many days after the run was made.")
    ] = 365,
    key: Annotated[Path | None, Option(help="Private key (PEM) to sign them with; none: the run's own.")] = None,
    variant: Annotated[
        str | None,
        Option(help="Every class gets this one, e.g. i8, whatever it loses there. Default: the best of each."),
    ] = None,
    zipped: Annotated[bool, Option("--zip", help="Write each bundle as one zip file too, beside its folder.")] = False,
    with_users: Annotated[
        bool,
        Option(
            "--with-users", help="Put the simulated users' private state and names in, for parity tests; never publish."
        ),
    ] = False,
    served: Annotated[
        bool,
        Option(
            "--served", help="Of what real devices have learned since: the next bundles, with which `serve` goes on."
        ),
    ] = False,
    next_block: Annotated[
        bool, Option("--next-block", help="With --served, of a run over blocks: they open the next block of time.")
    ] = False,
) -> None:
    """Pack what a run learned into one bundle per device class: ONNX graphs, item vectors, tokenizer, manifest.

    Example: `edgefr export runs/demo --out shipped`

    Example: `edgefr export runs/demo --out signed --expires-days 90 --zip`

    Example: `edgefr export runs/demo --variant i8 --out small`

    Example: `edgefr export runs/demo --served`

    Example: `edgefr export runs/demo --served --next-block`
    """
    asked = dict(locals())
    if (asked.pop("folder") is None) == (run is None):
        raise InputError("export needs the folder of one finished run: edgefr export RUN")
    asked["run"] = folder or run
    from edgefr.simulation.bundles import export as write

    with shown() as progress:
        found = write(**asked, progress=progress)
    for sheet in found.sheets:
        show(sheet)
    say(f"bundles: {found.path}")
