"""`edgefr device` is one device from the shell. It has nothing but what a device has; no torch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from edge.interaction_file import check_work, read_interactions
from edge.limited_process import NOW, timed
from edgefr.cli.confined import MaxRam, MaxSeconds, confined
from edgefr.cli.helped import Group
from edgefr.cli.progress import shown
from edgefr.cli.recommend import show
from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.device import Device

device = typer.Typer(
    name="device",
    cls=Group,
    rich_markup_mode="markdown",
    help="One device: learn on it, recommend from it, look at its state. No torch.",
)

BundleFolder = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A bundle of simulate or export: a folder or a zip.")
]
StateFolder = Annotated[Path, typer.Option("--state", help="Folder of the device's private state; made when missing.")]
AsUser = Annotated[
    str | None,
    typer.Option("--user", help="Name that a server knows the device by; of a bundle with users, one of them."),
]
TrustedKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key", help="Public key that must have signed the bundle; none: that of first use. May be repeated."
    ),
]

PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy", help="What may leave this device from now on (YAML: epsilon, unprotected, ...); kept as its policy."
    ),
]

Renew = Annotated[
    bool,
    typer.Option("--renew", help="Go on under another bundle of the same publisher; the ledger of what left goes on."),
]

Authority = Annotated[
    Path | None, typer.Option("--ca", help="Certificate (PEM) that the server's is signed by, if its code names none.")
]
OwnCertificate = Annotated[
    Path | None,
    typer.Option("--tls-cert", help="Certificate (PEM) that this device shows; none: it shows nothing."),
]
OwnKey = Annotated[Path | None, typer.Option("--tls-key", help="Private key (PEM) of --tls-cert; none: it has none.")]

LEARNING = "learning on the device"


@device.command()
def learn(
    bundle: BundleFolder,
    state: StateFolder,
    user: AsUser = None,
    interactions: Annotated[
        Path | None, typer.Option(help="New interactions: a text file with one item id per line.")
    ] = None,
    item: Annotated[list[str] | None, typer.Option(help="An item id; may be repeated.")] = None,
    update: Annotated[Path | None, typer.Option(help="The server's update to apply first (a delta file).")] = None,
    new_block: Annotated[
        bool, typer.Option("--new-block", help="First end the block: what was learned is remembered and replayed.")
    ] = False,
    personalise: Annotated[
        bool, typer.Option("--personalise", help="Local training after the rounds instead; nothing is released.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write the release; none: it is kept in the state.")] = None,
    max_ram_mb: MaxRam = None,
    max_seconds: MaxSeconds = None,
    key: TrustedKeys = None,
    policy: PolicyFile = None,
    renew: Renew = False,
) -> None:
    """Learn from interactions: the local work of one round. What would be sent is the release; the rest stays here.

    The device's own policy (policy.yaml in its state, strict where there is none) decides whether anything may leave.
    Where it may not, the device learns and keeps it all, unless --out asks for the release.

    Example: `edgefr device learn runs/demo/bundles/phone_sd680 --state phone --item i00012`

    Example: `edgefr device learn shipped/phone_sd680 --state phone --interactions mine.txt`
    """
    from edge.delta import read_delta
    from edge.device import Device
    from privacy.files import write_atomic

    if personalise and out is not None:
        raise InputError("--personalise releases nothing, so there is nothing for --out; leave one of them away")
    adopt(policy, state)
    confined(state, max_ram_mb, max_seconds)
    one = Device(bundle, state, user=user, max_ram_mb=max_ram_mb, max_seconds=max_seconds, trusted=key, renew=renew)
    found = [*(item or []), *(read_interactions(interactions) if interactions else [])]
    if update is not None:
        one.apply(read_delta(update, one.learning, trusted=one.publisher))
    if new_block:
        one.next_block()
    if personalise:
        with shown(doing=LEARNING):
            one.personalise(found)
        Console().print("local training done; nothing leaves the device")
        return
    why = None if out is not None else one.refuses()
    if why is not None:
        with shown(doing=LEARNING):
            one.practise(found)
        _print(
            "learned", {"optimiser steps": f"{one.work['steps']} of {one.work['planned']}", "released": f"no: {why}"}
        )
        return
    check_work(one, found)
    with shown(doing=LEARNING):
        release = one.learn(found)
    content = release.to_bytes()
    if out is not None:
        write_atomic(out, content, mode=0o600)
    rows, work = {name: len(items) for name, (items, _) in release.rows.items()}, one.work
    facts = {
        "round": str(release.round),
        "optimiser steps": f"{work['steps']} of {work['planned']}",
        **({"training failed": f"noise alone is released: {work['failed']}"} if work.get("failed") else {}),
        "values of the update": f"{release.update.size:,}",
        **({"rows sent": ", ".join(f"{count:,} of {name}" for name, count in rows.items())} if rows else {}),
        "clipped": "yes" if work["clipped"] else "no",
        **({"exact noise": f"{work['noise_ms']:.1f} ms"} if work["noise_ms"] else {}),
        "bytes": f"{len(content):,}",
        "written to": str(out) if out is not None else f"{state} (give --out for a file)",
    }
    _print("release", facts)


@device.command()
def recommend(
    bundle: BundleFolder,
    state: StateFolder,
    user: AsUser = None,
    k: Annotated[int, typer.Option("-k", "--k", min=1, help="How many items.")] = 10,
    exclude: Annotated[list[str] | None, typer.Option(help="Item ids to leave out; may be repeated.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Beside each its nearest own item.")] = False,
    max_ram_mb: MaxRam = None,
    max_seconds: MaxSeconds = None,
    key: TrustedKeys = None,
) -> None:
    """Show what the device would recommend now.

    Example: `edgefr device recommend runs/demo/bundles/phone_sd680 --state phone`

    Example: `edgefr device recommend shipped/phone_sd680 --state phone -k 3 --explain`
    """
    from edge.device import Device

    confined(state, max_ram_mb, max_seconds)
    one = Device(bundle, state, user=user, max_ram_mb=max_ram_mb, max_seconds=max_seconds, trusted=key)
    found = one.recommend(k, exclude or [])
    show(found, f"for {one.state.facts['user'] or 'this device'}", partial(_nearest, one) if explain else None)


@device.command()
def status(bundle: BundleFolder, state: StateFolder, key: TrustedKeys = None) -> None:
    """Show what the device knows of itself: rounds, interactions, releases. Counts alone, nothing private.

    Example: `edgefr device status runs/demo/bundles/phone_sd680 --state phone`

    Example: `edgefr device status shipped/phone_sd680 --state phone --key public.pem`
    """
    from edge.device import Device

    _started(bundle, state)
    confined(state)
    facts = Device(bundle, state, trusted=key).status()
    _print("device", {name.replace("_", " "): "-" if value is None else str(value) for name, value in facts.items()})


@device.command()
def update(
    bundle: BundleFolder,
    state: StateFolder,
    to: Annotated[
        Path | None, typer.Option(help="The newer bundle, of the same publisher and experiment; none: --undo.")
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Go back to what was before BUNDLE, if the device has not learned since.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option("--from", help="Server that the newer bundle is fetched from first; none: it is there."),
    ] = None,
    ca: Authority = None,
    tls_cert: OwnCertificate = None,
    tls_key: OwnKey = None,
    key: TrustedKeys = None,
) -> None:
    """Go on under a newer bundle with all that the device has learned; it can be undone until it learns again.

    Of a bundle that comes from a server the files that BUNDLE has too are taken from there. A fetch that was cut off
    goes on: give the same line again.

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
        Console(soft_wrap=True).print(f"{state} is as it was before; open it with the bundle before {bundle}")
        return
    if url is not None and not _fetched(one, url, to, ca=ca, shown=pair(tls_cert, tls_key), trusted=key):
        Console(soft_wrap=True).print(f"{url} has no newer bundle than {bundle}; nothing was changed")
        return
    with timed():
        carried = one.update(to, trusted=key)
    counts = f"interactions kept: {carried.kept:,}; no longer in the catalogue: {carried.gone:,}"
    Console(soft_wrap=True).print(f"{state} goes on under {to}; {counts}")


@device.command()
def trust(
    keys: Annotated[
        Path, typer.Argument(metavar="KEYS", help="The publisher's keys, as `edgefr bundle keys` made them.")
    ],
    state: StateFolder,
    key: Annotated[
        list[Path] | None, typer.Option("--key", help="Public key that must be among them; none: any. May be repeated.")
    ] = None,
) -> None:
    """Take the publisher's newest keys, if they follow from those that this device trusts; what is left out is revoked.

    Example: `edgefr device trust keys.json --state phone`

    Example: `edgefr device trust keys.json --state new-phone --key a/public.pem`
    """
    from edge.publisher import follow

    found = follow(state, keys, key)
    names = ", ".join(f"{name[:16]}..." for name in found.ids)
    Console(soft_wrap=True).print(f"trusted: set {found.version}, with the keys {names}")


def _fetched(one: Device, url: str, to: Path, **options: Any) -> bool:
    """Fetch the newer bundle of a server to a new folder; False: it has none. Options as those of the command."""
    from edge.connection import Server
    from edge.fetch import fetch
    from edge.identity import Identity

    server = Server(url, Identity.of(one.store.folder), options["ca"], shown=options["shown"])
    with shown(doing="fetching the bundle"):
        return fetch(server, to, earlier=one.bundle, trusted=options["trusted"]) is not None


def pair(cert: Path | None, key: Path | None) -> tuple[Path, Path] | None:
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


def _print(title: str, facts: dict[str, str]) -> None:
    from edgefr.config.sheet import Sheet

    rows = [{"what": name, "value": value} for name, value in facts.items()]
    Console().print(Sheet(title, rows, words=["what", "value"]))
