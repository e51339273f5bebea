"""`edgefr recommend` shows what a device would show (no torch), `edgefr explain` what that leans on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from edgefr.cli import options
from edgefr.cli.options import split
from edgefr.cli.output import say, show
from edgefr.config.progress import shown

if TYPE_CHECKING:
    from edge.catalogue import Recommendations

NEAREST = "nearest of your own"


def recommend(
    bundle: options.Bundle,
    user: Annotated[
        str | None, Option(help="A user that the bundle carries, where it was exported with users; none: a new device.")
    ] = None,
    k: options.Count = 10,
    exclude: options.Excluded = None,
    key: options.SignedBy = None,
) -> None:
    """Recommend from a bundle, using only what a device has.

    Example: `edgefr recommend runs/demo/bundles/phone_sd680`

    Example: `edgefr recommend runs/demo/bundles/laptop_x86 --k 3`
    """
    from edge.archive import opened
    from edge.recommender import Recommender

    with opened(bundle, trusted=key) as checked:
        found = Recommender(checked.root, trusted=key).recommend(k, user=user, exclude=exclude or [])
    show_list(found, f"for {user}" if user else "for a new device")


def show_list(found: Recommendations, title: str, nearest: Callable[[str], str] | None = None) -> None:
    """Print recommendations with their basis: `nearest` says of an item which of the user's own is nearest to it."""
    from edgefr.config.sheet import Sheet

    rows = []
    for rank, (item, name, score) in enumerate(found, 1):
        row = {"rank": str(rank), "item": item, "title": name}
        row |= {"score": f"{score:.4f}"} if found.basis == "model" else {}
        rows.append(row | ({} if nearest is None else {NEAREST: nearest(item)}))
    title = ": ".join([title, *([found.said] if found.said else [])])
    show(Sheet(title, rows, words=["item", "title", NEAREST]) if rows else Text(title))


def explain(
    source: Annotated[Path, Argument(help="Folder of a finished run; or a bundle, a folder or a zip.")],
    user: Annotated[str | None, Option(help="A user of the run, or one that the bundle carries.")] = None,
    items: Annotated[
        str, Option(help="Ids of items to ask about, by commas; none: the user's best, and the one held out.")
    ] = "",
    k: Annotated[
        int | None, Option("-k", "--k", min=1, help="How many of the best items, where none are named; default: 3.")
    ] = None,
    maps: Annotated[
        tuple[str, str] | None,
        Option("--map", help="Two users, whose items are laid out by t-SNE instead.", metavar="USER USER"),
    ] = None,
    out: Annotated[Path | None, Option(help="A folder for pictures (.png, .svg) and numbers (.json).")] = None,
) -> None:
    """Explain recommendations: the share of each that comes from each of the user's latest items; shares sum to 1.

    Example: `edgefr explain runs/demo --user u0000003`

    Example: `edgefr explain runs/demo --map u0000003 u0000008 --out maps`
    """
    from edgefr.simulation.explain import explain as ask
    from edgefr.simulation.explain import map_items
    from privacy.errors import InputError

    if maps is not None:
        if out is None or user is not None or items or k is not None:
            raise InputError("--map USER USER draws two users' items into --out DIR; omit --user, --items and -k")
        with shown(doing="laying items out"):
            map_items(source, list(maps), out=out)
        say(f"{out}: items.png, items.svg, items.json")
        return
    chosen = split(items)
    if items and not chosen:
        raise InputError("--items names none: give ids with commas between, or omit it for the best")
    if items and k is not None:
        raise InputError("-k says how many of the best items: omit it where --items names them")
    with shown(doing="explaining"):
        found = ask(source, user, chosen, k=3 if k is None else k, out=out)
    show(found.sheet)
