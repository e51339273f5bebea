"""`edgefr recommend` shows what a device would show, from its bundle alone (no torch)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from edge.cold_start import Recommendations

NEAREST = "nearest of your own"


def recommend(
    bundle: Annotated[Path, typer.Argument(help="A bundle that simulate or export wrote: a folder or a zip.")],
    user: Annotated[
        str | None,
        typer.Option(help="A user that the bundle carries, where it was exported with users; none: a new device."),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", min=1, help="How many items.")] = 10,
    exclude: Annotated[list[str] | None, typer.Option(help="Item ids to leave out; may be repeated.")] = None,
    key: Annotated[
        list[Path] | None, typer.Option(help="Public key that must have signed the bundle; may be repeated.")
    ] = None,
) -> None:
    """Recommend from a bundle, with nothing but what a device has.

    Example: `edgefr recommend runs/demo/bundles/phone_sd680`

    Example: `edgefr recommend runs/demo/bundles/laptop_x86 --k 3`
    """
    from edge.archive import opened
    from edge.recommender import Recommender

    with opened(bundle, trusted=key) as checked:
        found = Recommender(checked.root, trusted=key).recommend(k, user=user, exclude=exclude or [])
    show(found, f"for {user}" if user else "for a new device")


def show(found: Recommendations, title: str, nearest: Callable[[str], str] | None = None) -> None:
    """Print recommendations with their basis: `nearest` says of an item which of the user's own is nearest to it."""
    from edgefr.config.sheet import Sheet

    rows = []
    for rank, (item, name, score) in enumerate(found, 1):
        row = {"rank": str(rank), "item": item, "title": name}
        row |= {"score": f"{score:.4f}"} if found.basis == "model" else {}
        rows.append(row | ({} if nearest is None else {NEAREST: nearest(item)}))
    title = ": ".join([title, *([found.said] if found.said else [])])
    Console().print(Sheet(title, rows, words=["item", "title", NEAREST]) if rows else Text(title))
