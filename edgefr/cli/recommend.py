"""`edgefr recommend` shows what a device would show, from its bundle alone (no torch)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


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
    from edgefr.report.layout import Sheet

    with opened(bundle, trusted=key) as checked:
        found = Recommender(checked.root, trusted=key).recommend(k, user=user, exclude=exclude or [])
    rows = [
        {"rank": str(rank), "item": item, "title": title, "score": f"{score:.4f}"}
        for rank, (item, title, score) in enumerate(found, 1)
    ]
    title = f"for {user}" if user else "for a new device"
    Console().print(Sheet(title, rows, words=["item", "title"]))
