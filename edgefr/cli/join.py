"""`edgefr device enrol` and `edgefr device join` take part in a run as a real device."""

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

Address = Annotated[str, typer.Option("--url", help="Address that `edgefr serve` printed.")]
Authority = Annotated[
    Path | None, typer.Option("--ca", help="Certificate (PEM) that the server's is signed by, if its code names none.")
]


@device.command()
def enrol(
    bundle: BundleFolder,
    state: StateFolder,
    url: Address,
    code: Annotated[str, typer.Option(help="One-time code that `edgefr enrol` printed.")],
    ca: Authority = None,
    key: TrustedKeys = None,
    policy: PolicyFile = None,
) -> None:
    """Make this device's own key and have a server know it. The key stays in the state; requests are signed with it.

    Example: `edgefr device enrol phone.zip --state st --url http://127.0.0.1:8765 --code CODE`

    Example: `edgefr device enrol a.zip --state st --url https://lan:443 --code CODE --key publisher.pem`
    """
    from edge.connection import enrol as enrolled
    from edge.device import Device
    from edge.state import Store

    adopt(policy, state)
    user = enrolled(state, url, code, ca=ca).record.user
    Device(bundle, state, user=None if Store(state).exists else user, trusted=key)
    Console().print(f"enrolled as {user}; take part with `edgefr device join`", soft_wrap=True, highlight=False)


@device.command()
def join(
    bundle: BundleFolder,
    state: StateFolder,
    url: Address,
    interactions: Annotated[Path, typer.Option(help="The device's own: a text file with one item id per line.")],
    ca: Authority = None,
    key: TrustedKeys = None,
    policy: PolicyFile = None,
    renew: Renew = False,
) -> None:
    """Work for a server until it has no more rounds. Stopped at any moment, it goes on where it was: join again.

    The device has to be enrolled there: `edgefr device enrol`.

    Example: `edgefr device join phone.zip --state st --url http://127.0.0.1:8765 --interactions mine.txt`

    Example: `edgefr device join a.zip --state st --url https://lan:443 --interactions mine.txt --ca ca.pem`
    """
    from edge.device import Device
    from edge.identity import Identity
    from edge.remote import join as work
    from edge.state import Store

    user = Identity.of(state).record.user  # before a state is made for somebody who is nobody there
    adopt(policy, state)
    device = Device(bundle, state, user=None if Store(state).exists else user, trusted=key, renew=renew)
    with shown(doing="taking part in rounds"):
        done = work(device, url, read_interactions(interactions), ca=ca)
    Console().print(
        f"{done.taken} releases taken, {done.late} too late; {done.bytes_up:,} bytes sent, {done.bytes_down:,} received"
    )
    if done.unsafe:
        Console().print(f"{done.unsafe} secure sums refused: {done.refused}", soft_wrap=True)
    if done.rested:
        Console().print(f"{done.rested} rounds sat out: the server counts releases, and the privacy budget is spent")
    if done.stopped is not None:
        Console().print(f"stopped by itself: {done.stopped}", soft_wrap=True)
