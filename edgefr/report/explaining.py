"""Weights are drawn here as shares, and the items of users as points in the plane (FedCAR Fig. 3-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgefr.explaining import Explained, ItemMap

LONGEST = 32  # characters of a title


def weights_figure(explained: Explained) -> Figure:
    """Draw the share of every item of the user's (columns, the newest last) in each item asked about (rows)."""
    from matplotlib.figure import Figure

    shares = np.array([[lean.weight for lean in one.leans] for one in explained.found])
    rows = [f"{_short(one.title)} ({why})" for one, why in zip(explained.found, explained.why, strict=True)]
    columns = [_short(lean.title) for lean in explained.found[0].leans]
    figure = Figure(figsize=(3.5 + 0.9 * len(columns), 1.8 + 0.4 * len(rows)), layout="constrained")
    axis = figure.subplots()
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=max(float(shares.max()), 1e-9), aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        dark = share > 0.6 * shares.max()
        colour = "white" if dark else "black"
        axis.text(column, row, f"{share:.0%}", ha="center", va="center", fontsize="small", color=colour)
    axis.set_xticks(range(len(columns)), columns, rotation=35, ha="right", fontsize="small", parse_math=False)
    axis.set_yticks(range(len(rows)), rows, fontsize="small", parse_math=False)
    axis.set_xlabel(f"what {explained.user} had last, the newest on the right", parse_math=False)
    axis.set_title("what each item leans on")
    return figure


def maps_figure(maps: Sequence[ItemMap]) -> Figure:
    """Draw each user's items: those that it had, and as many that it had not."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(maps), 4.2), layout="constrained")
    for axis, one in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps, strict=True):
        for own, label, colour in ((False, "others, drawn", "tab:gray"), (True, "had", "tab:blue")):
            at = one.at[one.positive == own]
            axis.scatter(at[:, 0], at[:, 1], s=14, alpha=0.8, color=colour, label=label)
        axis.set_title(one.user, parse_math=False)
        axis.set(xticks=[], yticks=[])
        axis.legend(fontsize="small")
    figure.suptitle("items as the clients have them (t-SNE)", fontsize="medium")
    return figure


def _short(title: str) -> str:
    return title if len(title) <= LONGEST else f"{title[: LONGEST - 1]}…"
