"""`edgefr enrol` says who may take part in a served run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
    worthless, and a later key the earlier key; what a user's devices have released is counted together.

    Example: `edgefr enrol runs/demo --user ada`

    Example: `edgefr enrol runs/demo --user ada --revoke`
    """
    from edgefr.remote.certificate import own, pin_of
    from edgefr.remote.keys import Keys
    from edgefr.run import Run
    from edgefr.trained import open_model
    from privacy.errors import InputError, unknown

    opened = Run.open(run)
    names, keys = list(open_model(opened).model.names.users), Keys(opened.path)
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
