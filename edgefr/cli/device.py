"""`edgefr device` is one device from the shell. It has nothing but what a device has; no torch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from edge.limited_process import NOW, timed
from edgefr.cli import options
from edgefr.cli.commands import Group
from edgefr.cli.output import say, show_facts
from edgefr.cli.recommend import show_list
from edgefr.config.progress import shown
from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.device import Device
    from edge.update import ClientUpdate

Pair = tuple[Path, Path]
"""A certificate, and its key."""

device = typer.Typer(
    name="device",
    cls=Group,
    rich_markup_mode="markdown",
    help="Act as one device, without torch: learn, recommend, show its state, join rounds.",
)


@device.command()
def learn(
    bundle: options.BundleFolder,
    state: options.StateFolder,
    user: options.AsUser = None,
    interactions: Annotated[
        Path | None, Option(help="New interactions: a text file with one item id per line.")
    ] = None,
    item: Annotated[list[str] | None, Option(help="An item id; may be repeated.")] = None,
    update: Annotated[Path | None, Option(help="The server's update to apply first (a delta file).")] = None,
    new_block: Annotated[
        bool, Option("--new-block", help="First end the block: what was learned is remembered and replayed.")
    ] = False,
    personalise: Annotated[
        bool, Option("--personalise", help="Local training after the rounds instead; nothing is released.")
    ] = False,
    out: Annotated[Path | None, Option(help="Where to write the release; none: it is kept in the state.")] = None,
    max_ram_mb: options.MaxRam = None,
    max_seconds: options.MaxSeconds = None,
    key: options.TrustedKeys = None,
    policy: options.PolicyFile = None,
    renew: options.Renew = False,
) -> None:
    """Train on interactions: the local work of one round. Only the release would be sent; the rest stays on the device.

    The device's own policy (policy.yaml in its state; strict if missing) decides whether anything may leave the device.
    If nothing may leave, the device still learns, and makes a release only if --out asks for one.

    Example: `edgefr device learn runs/demo/bundles/phone_sd680 --state phone --item i00012`

    Example: `edgefr device learn shipped/phone_sd680 --state phone --interactions mine.txt`
    """
    from edge.delta import read_delta
    from edge.device import Device
    from edge.interaction_file import check_work, read_interactions

    if personalise and out is not None:
        raise InputError("--personalise releases nothing, so there is nothing for --out; omit one of them")
    adopt(policy, state)
    confined(state, max_ram_mb, max_seconds)
    one = Device(bundle, state, user=user, max_ram_mb=max_ram_mb, max_seconds=max_seconds, trusted=key, renew=renew)
    found = [*(item or []), *(read_interactions(interactions) if interactions else [])]
    if update is not None:
        one.apply(read_delta(update, one.learning, trusted=one.publisher))
    if new_block:
        one.next_block()
    why = None if personalise or out is not None else one.refuses()
    if why is None and not personalise:
        check_work(one, found)
    with shown(doing="learning on the device"):
        release = None
        if personalise:
            one.personalise(found)
        elif why is not None:
            one.practise(found)
        else:
            release = one.learn(found)
    if personalise:
        say("local training done; nothing leaves the device")
    elif release is None:
        show_facts("learned", [_steps(one), ("released", f"no: {why}")])
    else:
        _show_release(one, release, out)


def _steps(one: Device) -> tuple[str, str]:
    return "optimiser steps", f"{one.work['steps']} of {one.work['planned']}"


def _show_release(one: Device, release: ClientUpdate, out: Path | None) -> None:
    """Write a release where that is asked for, and print what it is."""
    from privacy.files import write_atomic

    content = release.to_bytes()
    if out is not None:
        write_atomic(out, content, mode=0o600)
    work, rows = one.work, [f"{len(items):,} of {name}" for name, (items, _) in release.rows.items()]
    facts = [
        ("round", str(release.round)),
        _steps(one),
        ("training failed", f"noise alone is released: {work['failed']}" if work.get("failed") else ""),
        ("values of the update", f"{release.update.size:,}"),
        ("rows sent", ", ".join(rows)),
        ("clipped", "yes" if work["clipped"] else "no"),
        ("exact noise", f"{work['noise_ms']:.1f} ms" if work["noise_ms"] else ""),
        ("bytes", f"{len(content):,}"),
        ("written to", str(out) if out is not None else f"{one.store.folder} (give --out for a file)"),
    ]
    show_facts("release", [fact for fact in facts if fact[1]])


@device.command()
def recommend(
    bundle: options.BundleFolder,
    state: options.StateFolder,
    user: options.AsUser = None,
    k: options.Count = 10,
    exclude: options.Excluded = None,
    explain: Annotated[bool, Option("--explain", help="Show the user's nearest own item beside each.")] = False,
    max_ram_mb: options.MaxRam = None,
    max_seconds: options.MaxSeconds = None,
    key: options.TrustedKeys = None,
) -> None:
    """Show what the device would recommend now.

    Example: `edgefr device recommend runs/demo/bundles/phone_sd680 --state phone`

    Example: `edgefr device recommend shipped/phone_sd680 --state phone -k 3 --explain`
    """
    from edge.device import Device

    confined(state, max_ram_mb, max_seconds)
    one = Device(bundle, state, user=user, max_ram_mb=max_ram_mb, max_seconds=max_seconds, trusted=key)
    found = one.recommend(k, exclude or [])
    show_list(found, f"for {one.state.facts['user'] or 'this device'}", partial(_nearest, one) if explain else None)


@device.command()
def status(bundle: options.BundleFolder, state: options.StateFolder, key: options.TrustedKeys = None) -> None:
    """Show a device's counts: rounds, interactions, releases, spent epsilon. Nothing private is shown.

    Example: `edgefr device status runs/demo/bundles/phone_sd680 --state phone`

    Example: `edgefr device status shipped/phone_sd680 --state phone --key public.pem`
    """
    from edge.device import Device

    _started(bundle, state)
    confined(state)
    facts = Device(bundle, state, trusted=key).status().items()
    show_facts("device", ((name.replace("_", " "), "-" if value is None else str(value)) for name, value in facts))


@device.command()
def update(
    bundle: options.BundleFolder,
    state: options.StateFolder,
    to: Annotated[
        Path | None, Option(help="The newer bundle, of the same publisher and experiment; none: --undo.")
    ] = None,
    undo: Annotated[
        bool, Option("--undo", help="Go back to what was before BUNDLE, if the device has not learned since.")
    ] = False,
    url: Annotated[
        str | None, Option("--from", help="Server that the newer bundle is fetched from first; none: it is there.")
    ] = None,
    ca: options.Authority = None,
    tls_cert: options.OwnCertificate = None,
    tls_key: options.OwnKey = None,
    key: options.TrustedKeys = None,
) -> None:
    """Switch to a newer bundle and keep what the device has learned. --undo reverts it until the device learns again.

    With --from, files that BUNDLE already has are not fetched again. To continue an interrupted fetch, repeat the
    command.

    Example: `edgefr device update old/phone_sd680 --to new/phone_sd680 --state phone`

    Example: `edgefr device update phone --to phone-2 --from http://127.0.0.1:8765 --state phone-state`

    Example: `edgefr device update new/phone_sd680 --undo --state phone`
    """
    from edge.device import Device

    if (to is None) == (not undo):
        raise InputError("give --to with the newer bundle, or --undo to go back; one of them")
    if url is not None and to is None:
        raise InputError("give --to with a new folder for what is fetched")
    _started(bundle, state)
    confined(state)
    one = Device(bundle, state)
    NOW.rest()  # what is fetched takes its time
    if to is None:
        one.undo()
        say(f"{state} is as it was before; open it with the bundle before {bundle}")
        return
    if url is not None and not _fetched(one, url, to, ca, pair(tls_cert, tls_key), key):
        say(f"{url} has no newer bundle than {bundle}; nothing was changed")
        return
    with timed():
        carried = one.update(to, trusted=key)
    counts = f"interactions kept: {carried.kept:,}; no longer in the catalogue: {carried.gone:,}"
    say(f"{state} goes on under {to}; {counts}")


@device.command()
def trust(
    keys: Annotated[Path, Argument(metavar="KEYS", help="The publisher's keys, as `edgefr bundle keys` made them.")],
    state: options.StateFolder,
    key: Annotated[
        list[Path] | None, Option("--key", help="Public key that must be among them; none: any. May be repeated.")
    ] = None,
) -> None:
    """Accept the publisher's newest keys if trusted keys signed them; keys that are missing from them are revoked.

    Example: `edgefr device trust keys.json --state phone`

    Example: `edgefr device trust keys.json --state new-phone --key a/public.pem`
    """
    from edge.publisher import follow

    found = follow(state, keys, key)
    names = ", ".join(f"{name[:16]}..." for name in found.ids)
    say(f"trusted: set {found.version}, with the keys {names}")


def _fetched(one: Device, url: str, to: Path, ca: Path | None, own: Pair | None, trusted: list[Path] | None) -> bool:
    """Fetch the newer bundle of a server to a new folder; False: it has none."""
    from edge.connection import Server
    from edge.fetch import fetch
    from edge.identity import Identity

    server = Server(url, Identity.of(one.store.folder), ca, shown=own)
    with shown(doing="fetching the bundle"):
        return fetch(server, to, earlier=one.bundle, trusted=trusted) is not None


def pair(cert: Path | None, key: Path | None) -> Pair | None:
    """Return a device's certificate and its key; None where it has none. Raises `InputError` for one of them alone."""
    if (cert is None) != (key is None):
        raise InputError("a certificate needs its key: give both --tls-cert and --tls-key")
    return None if cert is None or key is None else (cert, key)


def _started(bundle: Path, state: Path) -> None:
    """Refuse a folder without a device's state."""
    from edge.state import Store

    if not Store(state).exists:
        raise InputError(f"{state} holds no state yet; start one with `edgefr device learn {bundle} --state {state}`")


def adopt(policy: Path | None, state: Path) -> None:
    """Make a checked policy file the policy of a device; None: it keeps the one it has."""
    from edge.policy import NAME, Policy
    from privacy.files import write_atomic

    if policy is not None:
        if not policy.is_file():
            raise InputError(f"{policy} is not a policy file; give a YAML file with keys such as epsilon")
        Policy.read(policy)
        write_atomic(state / NAME, policy.read_bytes(), mode=0o600)


def _nearest(one: Device, item: str) -> str:
    try:
        found: Iterable[tuple[str, str, float]] = one.nearest(item, 1)
    except InputError:
        return "-"
    return ", ".join(f"{title} ({value:.2f})" for _, title, value in found)


def confined(state: Path, ram_mb: float | None = None, seconds: float | None = None, resumes: bool = False) -> None:
    """Go on under these limits, each of the device's policy where it is None, in a child process.

    `resumes`: where a limit ends a round that is charged, begin again, so that its release leaves without training.
    """
    from edge.limited_process import Limits, confine
    from edge.policy import Policy
    from edge.release import BEGUN
    from edge.state import Store

    policy = Policy.of(state)
    limits = Limits(policy.max_ram_mb if ram_mb is None else ram_mb, policy.max_seconds if seconds is None else seconds)
    if limits == Limits():
        return

    def begun() -> object:
        store = Store(state)
        return store.read().facts.get(BEGUN) if resumes and store.exists else None

    try:
        confine(limits.ram_mb, limits.seconds, _ready, begun)
    except InputError:
        console = Console(stderr=True)
        if console.is_terminal:  # whose progress was cut off as it stood
            console.show_cursor()
            console.print()
        raise


def _ready() -> None:
    """Import what a device needs, and start its thread: what comes later counts against the limits."""
    import edge.device
    import edge.ort  # noqa: F401
    from edge.graph import WATCH

    WATCH.start()
