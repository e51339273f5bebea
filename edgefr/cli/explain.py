"""`edgefr explain` shows what one user's recommendations lean on, or how the items of two users lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def explain(
    source: Annotated[Path, typer.Argument(help="Folder of a finished run; or a bundle, a folder or a zip.")],
    user: Annotated[str | None, typer.Option(help="A user of the run, or one that the bundle carries.")] = None,
    items: Annotated[
        str, typer.Option(help="Ids of items to ask about, by commas; none: the user's best, and the one held out.")
    ] = "",
    k: Annotated[
        int | None,
        typer.Option("-k", "--k", min=1, help="How many of the best items, where none are named; default: 3."),
    ] = None,
    maps: Annotated[
        tuple[str, str] | None,
        typer.Option("--map", help="Two users, whose items are laid out by t-SNE instead.", metavar="USER USER"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for pictures (.png, .svg) and numbers (.json).")] = None,
) -> None:
    """Explain recommendations: how much each leans on the items that its user had last; the shares sum to 1.

    Example: `edgefr explain runs/demo --user u0000003`

    Example: `edgefr explain runs/demo --map u0000003 u0000008 --out maps`
    """
    from edgefr.simulation.explain import explain as ask
    from edgefr.simulation.explain import map_items
    from privacy.errors import InputError

    if maps is not None:
        if out is None or user is not None or items or k is not None:
            raise InputError("--map USER USER draws two users' items into --out DIR; leave --user, --items, -k away")
        with shown(doing="laying items out"):
            map_items(source, list(maps), out=out)
        Console().print(f"{out}: items.png, items.svg, items.json", soft_wrap=True)
        return
    chosen = [item.strip() for item in items.split(",") if item.strip()]
    if items and not chosen:
        raise InputError("--items names none: give ids with commas between, or leave it away for the best")
    if items and k is not None:
        raise InputError("-k says how many of the best items: leave it away where --items names them")
    with shown(doing="explaining"):
        found = ask(source, user, chosen, k=3 if k is None else k, out=out)
    Console().print(found.sheet)
