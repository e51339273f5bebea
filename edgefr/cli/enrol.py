"""`edgefr enrol` says who may take part in a served run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

NAMED = 5
"""Users of a class that are named; of more their number is said."""


def enrol(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that is served, or is going to be.")],
    user: Annotated[
        list[str] | None,
        typer.Option(help="Whose device it is; may be repeated. Default: every user of the run without a key."),
    ] = None,
    days: Annotated[float, typer.Option(min=0.001, help="Days for which a code is good.")] = 7.0,
    tls_cert: Annotated[
        Path | None, typer.Option(help="The server's certificate (PEM), if it is not the one made for the run.")
    ] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take their keys and open codes away instead.")] = False,
) -> None:
    """Print a one-time code per user, with which one device can enrol a key of its own: `edgefr device enrol`.

    A line has a user and the code, which is shown once and kept nowhere. A later code of a user makes earlier ones
    worthless, and a later key the earlier key; what a user's devices have released is counted together. Beside them, on
    stderr, stands the class of device that users have in the run: a server hands out bundles of the classes it serves.

    Example: `edgefr enrol runs/demo --user ada`

    Example: `edgefr enrol runs/demo --user ada --revoke`
    """
    from edgefr.serving.certificate import own, pin_of
    from edgefr.serving.keys import Keys
    from edgefr.simulation.runs.device_users import users_by_class
    from edgefr.simulation.runs.run import Run
    from edgefr.simulation.runs.saved_model import open_model
    from edgefr.simulation.runs.served_tensors import published
    from privacy.errors import InputError, unknown

    opened = Run.open(run)
    saved = open_model(opened)
    names, keys = list(saved.model.names.users), Keys(opened.path)
    keys.look()
    if revoke and not user:
        raise InputError("say whose key is to be revoked: give --user")
    asked = user or [name for name in names if name not in keys.keys]
    for name in sorted(set(asked) - set(names)):
        raise unknown("user", name, names)
    if revoke:
        for name in asked:
            keys.revoke(name)
        return
    pin = pin_of(own(opened.path)[0] if tls_cert is None else tls_cert)
    for name, code in keys.issue(asked, days).items():
        typer.echo(f"{name} {code}.{pin}")
    classes = {names[user]: kind for kind, users in users_by_class(opened, saved).items() for user in users.tolist()}
    for line in said_of(asked, classes, published(opened)):
        typer.echo(line, err=True)


def said_of(users: Sequence[str], classes: Mapping[str, str], bundles: Path) -> Iterator[str]:
    """Say which class of device users have, a line for each class, and which of them have no bundle to fetch."""
    for kind in sorted({classes.get(user, "") for user in users}):
        own = [user for user in users if classes.get(user, "") == kind]
        whose = ", ".join(own) if len(own) <= NAMED else f"{', '.join(own[:NAMED])} and {len(own) - NAMED} more"
        if not kind:
            yield f"no device: {whose}; they learned nothing in this run, so no server lets them take part"
        elif (bundles / kind).is_dir():
            yield f"{kind}: {whose}"
        else:
            yield f"{kind}, which has no bundle in {bundles}, so a server has none to hand out: {whose}"
