"""The figures of a run are the learning curve and the fleet, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.report.verdict import ranked, ranking_of
from edgefr.report.web.chart import Chart
from edgefr.report.web.facts import Facts
from privacy.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(folder: Path, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """Write `learning-curve` and `fleet` as .png and .svg into `folder`: the same bytes for the same numbers."""
    from edgefr.report.web.curve import charts

    figures = {} if "central" in summary else {"fleet": fleet(summary["fleet"], ranking_of(summary))}
    if curves := charts(Facts(folder, summary, rows)):
        figures["learning-curve"] = drawn(curves, len(curves))
    if "continual" in summary:
        from edgefr.report.blocks import matrix_figure

        figures["blocks"] = matrix_figure(summary)
    for name, figure in figures.items():
        written(figure, folder / name)


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


def fleet(summary: dict[str, Any], how: str) -> Figure:
    """Draw, per device class, what became of invitations, what a round took, and what the model is worth to its users.

    Shares of invitations that contributed or failed and why; time and energy of a round.
    """
    from matplotlib.figure import Figure

    names, rows = list(summary["classes"]), list(summary["classes"].values())
    metric = next(iter(summary.get("fairness", {})), None)
    figure = Figure(figsize=(14 if metric is None else 18, 0.32 * len(names) + 2.0), layout="constrained")
    left, *middle = figure.subplots(1, 3 if metric is None else 4, sharey=True)
    places, offset = range(len(names)), [0.0] * len(names)
    for number, kind in enumerate(["contributed", *dict.fromkeys(k for row in rows for k in row["failures"])]):
        counts = [row["failures"].get(kind, 0) if number else row["contributed"] for row in rows]
        shares = [count / row["invited"] if row["invited"] else 0.0 for count, row in zip(counts, rows, strict=True)]
        colour = f"C{number + 2}" if number else "tab:green"
        left.barh(places, shares, left=offset, color=colour, label=kind.replace("_", " "))
        offset = [a + b for a, b in zip(offset, shares, strict=True)]
    left.set(xlabel="share of invitations", yticks=list(places), yticklabels=names, xlim=(0, 1))
    left.invert_yaxis()
    left.legend(fontsize="x-small", loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False)
    for axis, key, label in zip(middle, ("seconds", "energy_j"), ("seconds", "joules"), strict=False):
        _spreads(axis, [row.get(key) or {} for row in rows])
        axis.set(xlabel=f"{label} per round (p10, p50, p90)")
    if metric is not None:
        _worth(middle[-1], metric, how, summary)
    for axis in middle:
        axis.grid(alpha=0.3, axis="x")
    figure.suptitle("fleet: simulated participation, time and energy", fontsize="medium")
    return figure


def _spreads(axis: Axes, found: Sequence[dict[str, float]]) -> None:
    """Draw percentiles by device class, on a logarithmic axis where they are far apart."""
    for place, values in enumerate(found):
        if values.get("p50"):
            axis.plot([values["p10"], values["p90"]], [place, place], color="tab:blue")
            axis.plot(values["p50"], place, "o", color="tab:blue")
    ends = [values[q] for values in found for q in ("p10", "p90") if values.get(q)]
    if ends and max(ends) > 10 * min(ends):
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")  # powers of ten as formulas take a second to set


def _worth(axis: Axes, metric: str, how: str, summary: dict[str, Any]) -> None:
    """Draw a test metric by device class with its standard error, and everybody's mean."""
    cells = [row["metrics"].get(metric) for row in summary["classes"].values()]
    for place, cell in enumerate(cells):
        if cell is not None:
            axis.errorbar(cell["mean"], place, xerr=cell["standard_error"] or 0.0, fmt="o", color="tab:purple")
    axis.axvline(summary["fairness"][metric]["mean"], color="black", linestyle="--", linewidth=1, label="all users")
    axis.set(xlabel=f"{ranked(metric, how)} of test items (mean ± s.e.)", xlim=(0, None))
    axis.legend(fontsize="x-small", loc="lower right")
