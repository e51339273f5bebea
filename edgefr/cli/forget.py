"""`edgefr forget`: a user leaves a run, and it is trained anew without them where that is asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from edgefr.cli.options import DataDir, refuse_given
from edgefr.config.progress import shown
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.simulation.runs.run import Run


def forget(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a finished run; it may be served, or have been.")],
    user: Annotated[str | None, Option(help="Who leaves; none: give --key.")] = None,
    key: Annotated[str | None, Option(help="Whose key (64 hex digits) it is; none: give --user.")] = None,
    unlearn: Annotated[
        bool,
        Option(
            "--unlearn",
            help="First train the run anew as if they had never been in it, and attack both models.",
        ),
    ] = False,
    out: Annotated[
        Path | None, Option(help="Folder of the run that is trained anew. Default: RUN-unlearned, beside it.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Delete a user's data from the server and refuse the user's key, also on a server that is running.

    Keys, codes, releases that lie on the disk, metrics of the user and lines of the log go, and the name; a pseudonym
    is left. Says what stays.

    With --unlearn the simulated rounds are trained again without the user, from the data that the run read: the result
    is bit for bit the run that never had them. Served rounds cannot be repeated without their devices, and are given
    up. The others' data are released again, which their ledger counts; over a privacy.budget it is refused. A call that
    was killed is repeated as it was.

    Example: `edgefr forget runs/demo --user ada`

    Example: `edgefr forget runs/demo --user ada --unlearn`

    Example: `edgefr forget runs/demo --key 03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8`
    """
    from edgefr.serving.forget import forget as forget_user
    from edgefr.serving.keys import Keys
    from edgefr.simulation.runs.run import Run

    opened = Run.open(run)
    if (user is None) == (key is None):
        raise InputError("say who leaves: give --user or --key")
    found = user if key is None else Keys(opened.path).user_of(key)
    if found is None:
        raise InputError("this key is nobody's here: it was never enrolled, was replaced, revoked or forgotten")
    if not unlearn:
        refuse_given("is where a run is trained anew: give --unlearn with it", out=out)
    unlearned = _unlearned(opened, found, out, data_dir) if unlearn else None
    left = forget_user(opened, found, unlearned)
    typer.echo(f"{found} is forgotten here, and is {left.pseudonym} now. What stays:")
    for line in left.kept:
        typer.echo(f"- {line}")


def _unlearned(run: Run, user: str, out: Path | None, data_dir: Path | None) -> Path:
    """Train a run anew without a user, and say what that took, what it cost the others, and what attacks still find."""
    from edgefr.simulation.retrain import retrain, served_with
    from edgefr.simulation.runs.privacy_spent import told

    served, of_user = len(run.lineage.rounds), served_with(run, [user])
    spent, began = _epsilon(told(run)), time.perf_counter()
    with shown() as progress:
        new = retrain(run, [user], out, data_dir=data_dir, progress=progress)
    took, first = time.perf_counter() - began, run.summary["engine"]["wall_seconds"]
    typer.echo(f"trained anew without {user}, in {took:.1f} s (the first time: {first:.1f} s): {new.path}")
    if served:
        typer.echo(
            f"{served} served rounds, {of_user} of them with {user}, are not in it: their data are on devices, without "
            f"which nothing can be trained again; edgefr serve {new.path} has devices do rounds from there"
        )
    if spent is None:
        typer.echo("the other users' data were released again; neither release has a guarantee")
    else:
        typer.echo(
            f"the others' data were released again, so their ledger goes on: epsilon {_epsilon(new.summary)} in all, "
            f"{spent} before"
        )
    typer.echo(_attack(run, new, user, data_dir))
    return new.path


def _epsilon(summary: dict[str, Any]) -> str | None:
    """Return the epsilon that all rounds of a run have cost; None without a guarantee."""
    value = summary["privacy"]["eps_guaranteed"]
    return None if value == "inf" else f"{value:.3g}"


def _attack(run: Run, new: Run, user: str, data_dir: Path | None) -> str:
    """Say in a line how well the user's items are told from others, before and after."""
    from edgefr.simulation.runs.saved_model import open_model
    from edgefr.studies.audits.reference_attack import told_apart

    client = list(open_model(run).model.names.users).index(user)
    try:
        with shown() as progress:
            before, after = told_apart(run, new, client, data_dir=data_dir, progress=progress)
    except InputError as error:
        return f"whether the tensors know {user} was not attacked: {error}"
    return (
        f"{before.items} items that {user} trained on, told from {before.others:,} others by the shared tensors "
        f"(AUC, 0.5: not at all): {before} before, {after} after"
    )
