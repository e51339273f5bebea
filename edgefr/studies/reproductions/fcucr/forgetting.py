"""Figure 2 shows what is still known of first sessions after every round, and which probabilities test items get."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, number
from edgefr.studies.reproductions.cells import Cell, Found, Summary
from edgefr.studies.reproductions.fcucr import recipes
from edgefr.studies.reproductions.fcucr.recipes import Ask
from edgefr.studies.reproductions.fcucr.results import LABELS
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "HR@10"
HISTOGRAMS = ("fcucr-sasrec", "sasrec")
_SHOWN = (1, 2, 5, 10, 20, 30, 40)

Curve = list[float]


def needed(ask: Ask, data: str) -> list[recipes.Cell]:
    """Return backbones alone and FCUCR on SASRec: runs of Table 2."""
    return list(ask.cells(data, recipes.FIRST_SESSION).values())


def curve(found: Found, cell: Cell) -> Curve:
    """Return the mean over seeds of the first sessions' HR@10 after each round.

    It is as long as the shortest run; empty without one.
    """
    summaries = found.summaries.get(cell, {}).values()
    kept = [summary["sessions"]["first_session"].get(METRIC, []) for summary in summaries]
    length = min(map(len, kept), default=0)
    return [] if not length else list(np.mean([values[:length] for values in kept], axis=0))


def shares(found: Found, cell: Cell, of: str) -> list[float]:
    """Return the mean over seeds of the share of `of` (targets, negatives) per bin; empty without a run."""
    kept = [summary["sessions"]["probabilities"][of] for summary in found.summaries.get(cell, {}).values()]
    return list(np.mean(kept, axis=0)) if kept else []


def figure_2(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """(a) a curve per method, (b) and (c) histograms of FCUCR and of its backbone alone."""
    sheets, records = list[Sheet](), list[Record]()
    for name in data:
        cells = ask.cells(name, recipes.FIRST_SESSION)
        curves = {row: curve(found, cell) for row, cell in cells.items()}
        sheets.append(_first_sessions(name, curves))
        sheets.append(_probabilities(found, name, cells))
        for row, values in curves.items():
            head = {"data": name, "row": LABELS[row], "measure": f"first session {METRIC}"}
            records += [{**head, "at": number_, "value": value} for number_, value in enumerate(values, 1)]
        for row in HISTOGRAMS:
            for of in ("targets", "negatives"):
                head = {"data": name, "row": LABELS[row], "measure": f"share of {of} from probability"}
                bins = shares(found, cells[row], of)
                records += [{**head, "at": at / len(bins), "value": value} for at, value in enumerate(bins)]
    notes = [
        "first sessions: after every round each client is asked for the last item of its first training session from "
        "those before it, among itself and 100 sampled items; with a cyclic stream that session comes back, so its "
        "curve shows learning as much as forgetting",
        "probabilities: sigmoid of the scores of test targets and of their 100 sampled items, best round",
        "the paper prints no numbers for this figure",
    ]
    title = "FCUCR Figure 2: first sessions and probabilities"
    return Page("figure-2", title, sheets, records, notes, _drawn(ask, found, data))


def _first_sessions(name: str, curves: Mapping[str, Curve]) -> Sheet:
    rows = []
    for row, values in curves.items():
        best = max(values, default=math.nan)
        after = {f"round {n}": number(values[n - 1] if n <= len(values) else None, ".3f") for n in _SHOWN}
        last = values[-1] if values else math.nan
        rows.append(
            {"model": LABELS[row], **after, "best": number(best, ".3f"), "best - last": number(best - last, ".3f")}
        )
    return Sheet(f"{name}: {METRIC} of first sessions after each round", rows, ["model"])


def _probabilities(found: Found, name: str, cells: Mapping[str, Cell]) -> Sheet:
    rows = []
    for row in HISTOGRAMS:
        by_seed = found.summaries.get(cells[row], {})
        line = {"model": LABELS[row]}
        for of in ("targets", "negatives"):
            for least in (0.5, 0.9):
                values = [_above(summary, of, least) for summary in by_seed.values()]
                line[f"{of}\nfrom {least:g}"] = number(float(np.mean(values)) if values else None, ".3f")
        rows.append(line)
    return Sheet(f"{name}: shares with a probability of at least 0.5 and 0.9", rows, ["model"])


def _above(summary: Summary, of: str, least: float) -> float:
    """Return the share of `of` in bins that begin at `least` or later."""
    found = summary["sessions"]["probabilities"]
    return sum(v for edge, v in zip(found["edges"][:-1], found[of], strict=True) if edge >= least - 1e-9)


def _drawn(ask: Ask, found: Found, data: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.2 * len(data)), layout="constrained")
    grid = figure.subplots(len(data), 3, squeeze=False)
    for axes, name in zip(grid, data, strict=True):
        cells = ask.cells(name, recipes.FIRST_SESSION)
        for row, cell in cells.items():
            values = curve(found, cell)
            axes[0].plot(range(1, len(values) + 1), values, label=LABELS[row])
        axes[0].set(title=f"{name}: first sessions", xlabel="round", ylabel=METRIC)
        axes[0].legend(fontsize="small")
        for axis, row in zip(axes[1:], HISTOGRAMS, strict=True):
            for of in ("targets", "negatives"):
                bins = shares(found, cells[row], of)
                axis.bar(np.arange(len(bins)) / max(len(bins), 1), bins, 0.05, align="edge", alpha=0.6, label=of)
            axis.set(title=f"{name}: {LABELS[row]}", xlabel="probability", ylabel="share")
            axis.legend(fontsize="small")
        for axis in axes:
            axis.grid(alpha=0.3)
    return figure
