"""`edgefr bundle`: check, look at, compare and sign what devices get. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from edgefr.cli.commands import Group
from edgefr.cli.output import printable, say, show

bundle = typer.Typer(
    name="bundle",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Verify, inspect, compare and sign bundles (folders or zips).",
)

Given = Annotated[Path, Argument(metavar="BUNDLE", help="A bundle folder, or the zip of one.")]
Keys = Annotated[
    list[Path] | None, Option("--key", help="Public key (PEM) that must have signed it; give it again for more.")
]


@bundle.command()
def verify(
    path: Given,
    key: Keys = None,
    newest: Annotated[int | None, Option(min=0, help="Highest serial seen so far; an older bundle is refused.")] = None,
) -> None:
    """Check a bundle as a device does: signature, expiry, runtime, names, sizes, digests; exit code 2 if not good.

    Example: `edgefr bundle verify runs/demo/bundles/phone_sd680`

    Example: `edgefr bundle verify shipped/phone_sd680.zip --key public.pem`
    """
    from edge.archive import opened
    from edgefr.report.bundles import signature_of, size_of

    with opened(path, trusted=key, newest=newest) as found:
        m = found.manifest
        line = f"{path} is good: {m.device_class}, {m.method}, {m.variant}, serial {m.serial}, {size_of(found)}"
        _tell(f"{line}; signature: {signature_of(found, key is not None)}")


@bundle.command()
def inspect(
    path: Given,
    key: Keys = None,
) -> None:
    """Show what a bundle is: class, variant, graphs, files, signature, expiry (expired ones too), learning phases.

    Example: `edgefr bundle inspect runs/demo/bundles/phone_sd680`

    Example: `edgefr bundle inspect shipped/phone_sd680.zip`
    """
    from edge.archive import opened
    from edge.manifest_check import ALWAYS
    from edgefr.report.bundles import sheets

    with opened(path, trusted=key, now=ALWAYS) as found:
        show(*sheets(found, key is not None))


@bundle.command()
def diff(
    first: Annotated[Path, Argument(metavar="A", help="A bundle folder, or the zip of one.")],
    second: Annotated[Path, Argument(metavar="B", help="Another one.")],
) -> None:
    """Show how two bundles differ: manifest fields, and files added, removed or changed.

    Example: `edgefr bundle diff runs/demo/bundles/phone_sd680 shipped/phone_sd680`

    Example: `edgefr bundle diff old.zip new.zip`
    """
    from edge.archive import opened
    from edge.manifest_check import ALWAYS
    from edgefr.report.bundles import differences

    with opened(first, now=ALWAYS) as one, opened(second, now=ALWAYS) as two:
        found = differences(one, two)
        show(*found)
        if not found:
            _tell(f"no difference: both are bundle {one.manifest.bundle_id}")


@bundle.command()
def sign(
    path: Given,
    key: Annotated[Path, Option(help="Private key (PEM), as `edgefr bundle keygen` makes it.")],
) -> None:
    """Sign a bundle with an Ed25519 key; a signature it has is replaced.

    Example: `edgefr bundle sign shipped/phone_sd680 --key keys/private.pem`

    Example: `edgefr bundle sign shipped/laptop_x86 --key keys/private.pem`
    """
    from export.sign import sign_bundle

    _tell(f"signed {path} with key {sign_bundle(path, key)}")


@bundle.command()
def keygen(
    out: Annotated[Path, Option(help="Folder for private.pem (keep it) and public.pem (give it to devices).")],
) -> None:
    """Make a key pair to sign with.

    Example: `edgefr bundle keygen --out keys`

    Example: `edgefr bundle keygen --out other-keys`
    """
    from export.sign import generate

    _tell(f"made {out}/private.pem and {out}/public.pem, key {generate(out)}")


@bundle.command()
def keys(
    path: Annotated[Path, Argument(metavar="FILE", help="The publisher's keys; made when it is not there.")],
    key: Annotated[
        list[Path] | None, Option("--key", help="Public key (PEM) of a new set, none: no new set. May be repeated.")
    ] = None,
    threshold: Annotated[int, Option(min=1, help="How many of the new set's keys must sign the one after.")] = 1,
    sign: Annotated[
        list[Path] | None,
        Option("--sign", help="Private key (PEM) that signs the newest set, none: nobody does now. May be repeated."),
    ] = None,
) -> None:
    """Hand over to a new set of keys, or sign the newest one; a key that is left out is revoked.

    Devices follow with `edgefr device trust`. A set needs signatures of its own keys, and of the set before.

    Example: `edgefr bundle keys keys.json --key a/public.pem --key b/public.pem --sign a/private.pem`

    Example: `edgefr bundle keys keys.json --sign b/private.pem`
    """
    from export.sign import add_set, sign_set
    from privacy.errors import InputError

    if not key and not sign:
        raise InputError("nothing to do; give --key for a new set, or --sign for a signature of the newest")
    if key:
        made = add_set(path, key, threshold)
        _tell(
            f"{path}: set {made.version}, whose next is signed by {made.threshold} of its keys: {len(made.keys)} in all"
        )
    for private in sign or []:
        _tell(f"{path}: {sign_set(path, private)}")


def _tell(line: str) -> None:
    say(printable(line))
