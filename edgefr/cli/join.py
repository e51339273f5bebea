"""`edgefr device join` takes part in a run as a real device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.device import (
    BundleFolder,
    PolicyFile,
    Renew,
    StateFolder,
    TrustedKeys,
    adopt,
    device,
    read_interactions,
)
from edgefr.cli.progress import shown


@device.command()
def join(
    bundle: BundleFolder,
    state: StateFolder,
    url: Annotated[str, typer.Option(help="Address that `edgefr serve` printed.")],
    user: Annotated[str, typer.Option(help="Name that the server knows this device by: a user of its run.")],
    interactions: Annotated[Path, typer.Option(help="The device's own: a text file with one item id per line.")],
    token_file: Annotated[Path | None, typer.Option(help="File with the server's token.")] = None,
    ca: Annotated[Path | None, typer.Option(help="Certificate (PEM) that the server's is signed by.")] = None,
    key: TrustedKeys = None,
    policy: PolicyFile = None,
    renew: Renew = False,
) -> None:
    """Work for a server until it has no more rounds. Stopped at any moment, it goes on where it was: join again.

    Example: `edgefr device join phone.zip --state st --url http://127.0.0.1:8765 --user ada --interactions mine.txt`

    Example: `edgefr device join a.zip --state st --url https://lan:443 --user ada --interactions mine.txt --ca ca.pem`
    """
    from edge.device import Device
    from edge.remote import join as work
    from edge.remote import read_token

    token = None if token_file is None else read_token(token_file)
    adopt(policy, state)
    device = Device(bundle, state, user=user, trusted=key, renew=renew)
    with shown(doing="taking part in rounds"):
        done = work(device, url, read_interactions(interactions), token=token, ca=ca)
    Console().print(
        f"{done.taken} releases taken, {done.late} too late; {done.bytes_up:,} bytes sent, {done.bytes_down:,} received"
    )
    if done.rested:
        Console().print(f"{done.rested} rounds sat out: the server counts releases, and the privacy budget is spent")
    if done.stopped is not None:
        Console().print(f"stopped by itself: {done.stopped}", soft_wrap=True)
