"""`edgefr device enrol`, `fetch` and `join` take part in a run as a real device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from edgefr.cli import options
from edgefr.cli.device import adopt, confined, device, pair
from edgefr.cli.output import say
from edgefr.config.progress import shown


@device.command()
def enrol(
    bundle: options.BundleFolder,
    state: options.StateFolder,
    url: options.Address,
    code: Annotated[str, Option(help="One-time code that `edgefr enrol` printed.")],
    ca: options.Authority = None,
    tls_cert: options.OwnCertificate = None,
    tls_key: options.OwnKey = None,
    key: options.TrustedKeys = None,
    policy: options.PolicyFile = None,
) -> None:
    """Make a key for this device and register it with a server. The key stays in the state and signs requests.

    Example: `edgefr device enrol phone.zip --state st --url http://127.0.0.1:8765 --code CODE`

    Example: `edgefr device enrol a.zip --state st --url https://lan:443 --code CODE --key publisher.pem`
    """
    from edge.connection import enrol as enrolled
    from edge.device import Device
    from edge.state import Store

    adopt(policy, state)
    own = pair(tls_cert, tls_key)
    with shown(doing=f"waiting for {url}"):
        user = enrolled(state, url, code, ca=ca, shown=own).record.user
    confined(state)
    Device(bundle, state, user=None if Store(state).exists else user, trusted=key)
    say(f"enrolled as {user}; take part with `edgefr device join`")


@device.command()
def fetch(
    bundle: Annotated[Path, Argument(metavar="BUNDLE", help="New folder for the bundle.")],
    state: options.StateFolder,
    url: options.Address,
    code: Annotated[
        str | None, Option(help="One-time code that `edgefr enrol` printed; none: the device is enrolled.")
    ] = None,
    ca: options.Authority = None,
    tls_cert: options.OwnCertificate = None,
    tls_key: options.OwnKey = None,
    key: options.TrustedKeys = None,
    policy: options.PolicyFile = None,
) -> None:
    """Fetch this device's bundle from its server; with --code, enrol first.

    To continue an interrupted fetch, repeat the command. A device without --key and without a state trusts the signer
    of this bundle from now on.

    Example: `edgefr device fetch phone --state st --url http://127.0.0.1:8765 --code CODE`

    Example: `edgefr device fetch a --state st --url https://lan:443 --code CODE --key publisher.pem`
    """
    from edge.connection import Server
    from edge.connection import enrol as enrolled
    from edge.fetch import fetch as fetched
    from edge.identity import Identity

    adopt(policy, state)
    own = pair(tls_cert, tls_key)
    with shown(doing=f"waiting for {url}"):
        who = Identity.of(state) if code is None else enrolled(state, url, code, ca=ca, shown=own)
    with shown(doing="fetching the bundle"):
        found = fetched(Server(url, who, ca, shown=own), bundle, trusted=key)
    assert found is not None, "nothing was there before"
    signer = found.bundle.signed_by
    by = "by nobody" if signer is None else f"by key {signer[:16]}..."
    say(f"{bundle} is there: {found.received:,} bytes fetched, signed {by}; take part with `edgefr device join`")


@device.command()
def join(
    bundle: options.BundleFolder,
    state: options.StateFolder,
    url: options.Address,
    interactions: Annotated[
        Path, Option(help="The device's own: a text file, an item id a line, or item, tab, unix seconds.")
    ],
    ca: options.Authority = None,
    tls_cert: options.OwnCertificate = None,
    tls_key: options.OwnKey = None,
    max_ram_mb: options.MaxRam = None,
    max_seconds: options.MaxSeconds = None,
    key: options.TrustedKeys = None,
    policy: options.PolicyFile = None,
    renew: options.Renew = False,
) -> None:
    """Take part in a server's rounds until it has no more. To continue after a stop, join again.

    The device has to be enrolled there: `edgefr device enrol`. --max-seconds counts for each round.

    Example: `edgefr device join phone.zip --state st --url http://127.0.0.1:8765 --interactions mine.txt`

    Example: `edgefr device join a.zip --state st --url https://lan:443 --interactions mine.txt --ca ca.pem`
    """
    from edge.device import Device
    from edge.identity import Identity
    from edge.interaction_file import check_work, read_stream
    from edge.remote import join as work
    from edge.state import Store

    user = Identity.of(state).record.user  # before a state is made for somebody who is nobody there
    adopt(policy, state)
    confined(state, max_ram_mb, max_seconds, resumes=True)
    name = None if Store(state).exists else user
    one = Device(bundle, state, user=name, trusted=key, renew=renew, max_ram_mb=max_ram_mb, max_seconds=max_seconds)
    with shown(doing="waiting to be asked for a round") as progress:
        items, times = read_stream(interactions)
        check_work(one, items)
        done = work(one, url, items, times, ca=ca, shown=pair(tls_cert, tls_key), progress=progress)
    say(
        f"{done.taken} releases taken, {done.late} too late; {done.bytes_up:,} bytes sent, {done.bytes_down:,} received"
    )
    if not done.asked:
        say("the server has no more rounds and did not invite this device; join again when it serves more")
    if done.unsafe:
        say(f"{done.unsafe} secure sums refused: {done.refused}")
    if done.failed:
        say(f"{done.failed} rounds whose training failed, so that noise alone was sent: {done.failure}")
    if done.rested:
        say(f"{done.rested} rounds sat out: the server counts releases, and the privacy budget is spent")
    if done.stopped is not None:
        say(f"stopped by itself: {done.stopped}")
