"""`edgefr audit` attacks a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from edgefr.cli.progress import shown


def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    attacks: Annotated[
        str,
        typer.Option(
            help="Some of sign-split, membership, gradient-matching, game, canaries, game-rows, game-bytes, "
            "game-steps, by commas. Default: all."
        ),
    ] = "",
    users: Annotated[int, typer.Option(help="Clients that are attacked.")] = 50,
    trials: Annotated[int, typer.Option(help="Draws of a game.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Keys the draws of checks and games.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check and attack what leaves the devices of a run: is noise what it is said to be, and what do uploads give away?

    First a line with the verdict: a check that is violated, or a bound above the guarantee, is a finding, and the exit
    code is 0 as for a run without one. Rounds are played through the run's own training, clip and noise. Epsilon is a
    lower bound with 95 % confidence. audit.json in the run keeps the strongest finding of every attack.

    Example: `edgefr audit runs/demo`

    Example: `edgefr audit runs/demo --attacks game,canaries --trials 1000 --json`
    """
    from edgefr.studies.audits.audit import audit as attack

    names = [name.strip() for name in attacks.split(",") if name.strip()]
    with shown() as progress:
        found = attack(run, names, users=users, trials=trials, seed=seed, progress=progress)
    if as_json:
        typer.echo(json.dumps(found.report, indent=2, allow_nan=False))
    else:
        console = Console()
        console.print(Text(found.verdict, style="bold"), soft_wrap=True)
        console.print(found.checks_sheet)
        console.print(found.sheet)
