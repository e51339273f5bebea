"""`edgefr audit` attacks a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    attacks: Annotated[
        str, typer.Option(help="Some of sign-split, membership, gradient-matching, game, canaries, by commas.")
    ] = "",
    users: Annotated[int, typer.Option(help="Clients that are attacked.")] = 50,
    trials: Annotated[int, typer.Option(help="Draws of the distinguishing game.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Attack what leaves the devices of a run: what do uploads give away, and is epsilon what it is said to be?

    One more round of the run is played through its own training, clip and noise. Every figure stands beside what
    knowing nothing reaches; epsilon is a lower bound with 95 % confidence. Writes audit.json into the run.
    """
    from edgefr.api import audit as attack

    names = [name.strip() for name in attacks.split(",") if name.strip()]
    with shown() as progress:
        found = attack(run, names, users=users, trials=trials, progress=progress)
    if as_json:
        typer.echo(json.dumps(found.report, indent=2, allow_nan=False))
    else:
        Console().print(found.sheet)
