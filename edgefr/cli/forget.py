"""`edgefr forget` lets a user leave a served run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def forget(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that is served, or was.")],
    user: Annotated[str | None, typer.Option(help="Who leaves; none: give --key.")] = None,
    key: Annotated[str | None, typer.Option(help="Whose key (64 hex digits) it is; none: give --user.")] = None,
) -> None:
    """Delete what the server has of a user, whose key is refused from then on, also by a server that is at work.

    Keys, codes, releases that lie on the disk, metrics of the user and lines of the log go, and the name; a pseudonym
    is left. Says what stays: training takes nothing back.

    Example: `edgefr forget runs/demo --user ada`

    Example: `edgefr forget runs/demo --key 03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8`
    """
    from edgefr.serving.forget import forget as forget_user
    from edgefr.serving.keys import Keys
    from edgefr.simulation.runs.run import Run
    from privacy.errors import InputError

    opened = Run.open(run)
    if (user is None) == (key is None):
        raise InputError("say who leaves: give --user or --key")
    found = user if key is None else Keys(opened.path).user_of(key)
    if found is None:
        raise InputError("this key is nobody's here: it was never enrolled, was replaced, revoked or forgotten")
    left = forget_user(opened, found)
    typer.echo(f"{found} is forgotten here, and is {left.pseudonym} now. What stays:")
    for line in left.kept:
        typer.echo(f"- {line}")
