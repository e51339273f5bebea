"""`edgefr audit` attacks a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from edgefr.cli.options import Json, split
from edgefr.cli.output import say, show, show_json
from edgefr.config.progress import shown


def audit(
    run: Annotated[Path, Argument(help="Folder of a finished run.")],
    attacks: Annotated[
        str,
        Option(
            help="Some of sign-split, membership, gradient-matching, game, canaries, game-rows, game-bytes, "
            "game-steps, by commas. Default: all."
        ),
    ] = "",
    users: Annotated[int, Option(help="Clients that are attacked.")] = 50,
    trials: Annotated[int, Option(help="Draws of a game.")] = 10_000,
    seed: Annotated[int, Option(help="Keys the draws of checks and games.")] = 0,
    as_json: Json = False,
) -> None:
    """Check and attack what leaves the devices of a run: is noise what it is said to be, and what do uploads give away?

    First a line with the verdict: a check that is violated, or a bound above the guarantee, is a finding, and the exit
    code is 0 as for a run without one. Rounds are played through the run's own training, clip and noise. Epsilon is a
    lower bound with 95 % confidence. audit.json in the run keeps the strongest finding of every attack.

    Example: `edgefr audit runs/demo`

    Example: `edgefr audit runs/demo --attacks game,canaries --trials 1000 --json`
    """
    from edgefr.studies.audits.audit import audit as attack

    with shown() as progress:
        found = attack(run, split(attacks), users=users, trials=trials, seed=seed, progress=progress)
    if as_json:
        show_json(found.report)
        return
    say(found.verdict, style="bold")
    show(found.checks_sheet, found.sheet)
