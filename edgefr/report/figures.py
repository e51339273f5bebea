"""The figures of a run are the learning curve and the fleet, as PNG and SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.report.verdict import FULL, ranked, ranking_of
from privacy.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(folder: Path, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """Write `learning-curve` and `fleet` as .png and .svg into `folder`: the same bytes for the same numbers."""
    figures = {} if "central" in summary else {"fleet": fleet(summary["fleet"], ranking_of(summary))}
    if "continual" in summary:
        from edgefr.report.blocks import block_curves, matrix_figure

        figures |= {"learning-curve": block_curves(rows, summary), "blocks": matrix_figure(summary)}
    elif any(row["round"] for row in rows):  # round 0 alone is no curve
        figures["learning-curve"] = learning_curve(rows, summary)
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


def learning_curve(rows: list[dict[str, Any]], summary: dict[str, Any]) -> Figure:
    """Draw validation metrics over rounds; dashed lines are the references on the same items."""
    from matplotlib.figure import Figure

    points = [row for row in rows if row["round"] is not None and row["which"] == "valid"]
    names = [name for name in dict.fromkeys(row["metric"] for row in points) if not name.startswith("Recall")]
    figure = Figure(figsize=(5.2 * len(names), 3.6), layout="constrained")
    split, how = points[0]["on"], FULL if points[0]["ranking"] == "full" else ranking_of(summary)
    known = summary["validation"].get(split, {})
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        curve = [(row["round"], row["value"]) for row in points if row["metric"] == name]
        axis.plot(*zip(*curve, strict=True), marker="o", markersize=3, label=points[0]["stage"])
        for number, reference in enumerate(n for n in summary["references"].get(split, {}) if n in known):
            axis.axhline(known[reference][name], linestyle="--", linewidth=1, color=f"C{number + 1}", label=reference)
        axis.set(xlabel="round", ylabel=f"{ranked(name, how)}, validation", ylim=(0, None))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    figure.suptitle(f"{summary['method']} on {summary['data']} ({split})", fontsize="medium")
    return figure


def _worth(axis: Axes, metric: str, how: str, summary: dict[str, Any]) -> None:
    """Draw a test metric by device class with its standard error, and everybody's mean."""
    cells = [row["metrics"].get(metric) for row in summary["classes"].values()]
    for place, cell in enumerate(cells):
        if cell is not None:
            axis.errorbar(cell["mean"], place, xerr=cell["standard_error"] or 0.0, fmt="o", color="tab:purple")
    axis.axvline(summary["fairness"][metric]["mean"], color="black", linestyle="--", linewidth=1, label="all users")
    axis.set(xlabel=f"{ranked(metric, how)} of test items (mean ± s.e.)", xlim=(0, None))
    axis.legend(fontsize="x-small", loc="lower right")
    axis.grid(alpha=0.3, axis="x")


def fleet(summary: dict[str, Any], how: str) -> Figure:
    """Draw, per device class, what became of invitations, what a round took, and what the model is worth to its users.

    Shares of invitations that contributed or failed and why; time and energy of a round.
    """
    from matplotlib.figure import Figure

    classes = summary["classes"]
    names = list(classes)
    metric = next(iter(summary.get("fairness", {})), None)
    figure = Figure(figsize=(14 if metric is None else 18, 0.32 * len(names) + 2.0), layout="constrained")
    left, middle, right, *last = figure.subplots(1, 3 if metric is None else 4, sharey=True)
    places = range(len(names))
    offset = [0.0] * len(names)
    kinds = ["contributed", *dict.fromkeys(k for row in classes.values() for k in row["failures"])]
    for number, kind in enumerate(kinds):
        shares = []
        for row in classes.values():
            count = row["contributed"] if kind == "contributed" else row["failures"].get(kind, 0)
            shares.append(count / row["invited"] if row["invited"] else 0.0)
        colour = "tab:green" if kind == "contributed" else f"C{number + 2}"
        left.barh(places, shares, left=offset, color=colour, label=kind.replace("_", " "))
        offset = [a + b for a, b in zip(offset, shares, strict=True)]
    left.set(xlabel="share of invitations", yticks=list(places), yticklabels=names, xlim=(0, 1))
    left.invert_yaxis()
    left.legend(fontsize="x-small", loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False)
    for axis, key, label in (
        (middle, "seconds", "seconds per round"),
        (right, "energy_j", "joules per round"),
    ):
        spread = [row.get(key) or {} for row in classes.values()]
        for place, values in zip(places, spread, strict=True):
            if values.get("p50"):
                axis.plot([values["p10"], values["p90"]], [place, place], color="tab:blue")
                axis.plot(values["p50"], place, "o", color="tab:blue")
        ends = [values[q] for values in spread for q in ("p10", "p90") if values.get(q)]
        if ends and max(ends) > 10 * min(ends):
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")  # powers of ten as formulas take a second to set
        axis.set(xlabel=f"{label} (p10, p50, p90)")
        axis.grid(alpha=0.3, axis="x")
    if metric is not None:
        _worth(last[0], metric, how, summary)
    figure.suptitle("fleet: simulated participation, time and energy", fontsize="medium")
    return figure
