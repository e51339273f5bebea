"""Weights are drawn here as shares, and the items of users as points in the plane (FedCAR Fig. 3-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge.explain import Explanation
from privacy.files import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from edgefr.config.sheet import Sheet

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


WEIGHTS, MAP = "explained", "items"
"""Files that are written: a picture as .png and .svg, and what it shows as .json."""


@dataclass(frozen=True)
class Explained:
    """This is what some items lean on for one user; `why` says of each how it came to be asked about."""

    user: str
    found: Sequence[Explanation]
    why: Sequence[str]

    @property
    def frame(self) -> DataFrame:
        """Return a row per item and item of the user's, with the share that the first leans on the second."""
        import pandas as pd

        rows = [
            {"item": one.item, "title": one.title, "why": why}
            | {"context": lean.item, "context_title": lean.title, "weight": lean.weight}
            for one, why in zip(self.found, self.why, strict=True)
            for lean in one.leans
        ]
        return pd.DataFrame(rows)

    @property
    def sheet(self) -> Sheet:
        """Return the table for the terminal: of each item what it leans on most, first."""
        from edgefr.config.sheet import Sheet

        rows = []
        for one, why in zip(self.found, self.why, strict=True):
            leans = sorted(one.leans, key=lambda lean: -lean.weight)
            words = "\n".join(f"{lean.weight:6.1%} {lean.title}" for lean in leans)
            rows.append({"item": one.item, "title": one.title, "why": why, "leans on": words})
        title = f"what recommendations for {self.user} lean on, of the last {len(self.found[0].leans)} items"
        return Sheet(title, rows, words=["item", "title", "why", "leans on"], rules=range(len(rows)))

    def write(self, out: Path) -> None:
        """Write it as .json, and as a picture as .png and .svg."""
        from edgefr.report.figures import written

        figure = weights_figure(self)
        record = [asdict(one) | {"why": why} for one, why in zip(self.found, self.why, strict=True)]
        write_json(out / f"{WEIGHTS}.json", {"user": self.user, "items": record})
        written(figure, out / WEIGHTS)


@dataclass(frozen=True)
class ItemMap:
    """This is how the items of one user lie in the plane: `at` [n, 2], of those it had (`positive`) and had not."""

    user: str
    items: Sequence[str]
    positive: npt.NDArray[np.bool_]
    at: npt.NDArray[np.float32]
