"""Charts of a page are drawn and written as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.report.web.chart import Chart
from privacy.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def written(figure: Figure, path: Path) -> list[Path]:
    """Write a figure beside `path` as .png and .svg: the same bytes for the same numbers."""
    from matplotlib import rc_context

    paths = []
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else None
        with rc_context({"svg.hashsalt": "edgefr"}):  # ids inside an SVG are random without it
            figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
        figure.set_layout_engine("none")  # what was laid out for the first stays as it is
        paths.append(write_atomic(path.with_name(f"{path.name}.{kind}"), buffer.getvalue()))
    return paths


def drawn(found: Sequence[Chart], columns: int) -> Figure:
    """Draw charts of a page, so many beside each other."""
    from matplotlib.figure import Figure

    columns = min(columns, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.8 * rows), layout="constrained")
    for axis, c in zip(figure.subplots(rows, columns, squeeze=False).flat, found, strict=False):
        for at, one in enumerate(c.lines):
            x, y, spread = ([getattr(point, name) for point in one.points] for name in ("x", "y", "spread"))
            sd = [one or 0.0 for one in spread] if any(spread) else None
            axis.errorbar(x, y, sd, marker="o", markersize=3, capsize=3, color=f"C{at}", label=one.name)
        for at, level in enumerate(c.levels, len(c.lines)):
            axis.axhline(level.value, linestyle="--", linewidth=1, color=f"C{at}", label=level.name)
        for place, _ in c.rules:
            axis.axvline(place, color="0.8", linewidth=1)
        axis.set(title=c.about if len(c.about) < 60 else "", xlabel=c.x_title, ylabel=c.y_title)
        for of, set_scale, ticks, limits in (
            (c.x, axis.set_xscale, axis.set_xticks, axis.set_xlim),
            (c.y, axis.set_yscale, axis.set_yticks, axis.set_ylim),
        ):
            set_scale("log" if of.log else "linear")
            ticks([value for value, _ in of.ticks], labels=[label for _, label in of.ticks])
            limits(of.low, of.high)
        axis.minorticks_off()
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    return figure
