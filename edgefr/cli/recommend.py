"""`edgefr recommend`: what a device would show, from its bundle alone (no torch)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def recommend(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder written by simulate or export.")],
    user: Annotated[str | None, typer.Option(help="One of the bundle's simulated users; none: a new device.")] = None,
    k: Annotated[int, typer.Option(min=1, help="How many items.")] = 10,
    exclude: Annotated[list[str] | None, typer.Option(help="Item ids to leave out; may be repeated.")] = None,
) -> None:
    """Recommend from a bundle, with nothing but what a device has."""
    from edge.recommender import Recommender

    recommender = Recommender(bundle)
    table = Table(title=f"for {user}" if user else "for a new device")
    for column in ("rank", "item", "title", "score"):
        table.add_column(column)
    for rank, (item, title, score) in enumerate(recommender.recommend(k, user=user, exclude=exclude or []), 1):
        table.add_row(str(rank), item, title, f"{score:.4f}")
    Console().print(table)
