"""Figure 2 shows what is still known of first sessions after every round, and which probabilities test items get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Summary
from edgefr.studies.reproductions.fcucr.recipes import FIRST_SESSION, LABELS
from edgefr.studies.reproductions.tables import Made, Panel

METRIC = "HR@10"
HISTOGRAMS = ("fcucr-sasrec", "sasrec")
PARTS = ("targets", "negatives")
_SHOWN = (1, 2, 5, 10, 20, 30, 40)

Curve = list[float]


def curve(found: FinishedRuns, cell: Cell) -> Curve:
    """Return the mean over seeds of the first sessions' HR@10 after each round.

    It is as long as the shortest run; empty without one.
    """
    summaries = found.summaries.get(cell, {}).values()
    kept = [summary["sessions"]["first_session"].get(METRIC, []) for summary in summaries]
    length = min(map(len, kept), default=0)
    return [] if not length else list(np.mean([values[:length] for values in kept], axis=0))


def shares(found: FinishedRuns, cell: Cell, of: str) -> Curve:
    """Return the mean over seeds of the share of `of` (targets, negatives) per bin; empty without a run."""
    kept = [summary["sessions"]["probabilities"][of] for summary in found.summaries.get(cell, {}).values()]
    return list(np.mean(kept, axis=0)) if kept else []


def figure_2(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """(a) a curve per method, (b) and (c) histograms of FCUCR and of its backbone alone."""
    cells = ask.cells(data, FIRST_SESSION)
    curves = {LABELS[row]: dict(enumerate(curve(found, cell), 1)) for row, cell in cells.items()}
    bins = {LABELS[row]: {of: _places(shares(found, cells[row], of)) for of in PARTS} for row in HISTOGRAMS}
    records: list[Record] = [
        {"data": data, "row": row, "measure": f"first session {METRIC}", "at": at, "value": value}
        for row, values in curves.items()
        for at, value in values.items()
    ]
    records += [
        {"data": data, "row": row, "measure": f"share of {of} from probability", "at": at, "value": value}
        for row, parts in bins.items()
        for of, values in parts.items()
        for at, value in values.items()
    ]
    panels = [Panel(f"{data}: first sessions", "round", METRIC, {row: _drawn(of) for row, of in curves.items()})]
    for row, parts in bins.items():
        drawn = {of: _drawn(values) for of, values in parts.items()}
        panels.append(Panel(f"{data}: {row}", "probability", "share", drawn, kind="histogram"))
    return Made([_first_sessions(data, curves), _probabilities(found, data, cells)], records, panels=panels)


def _places(bins: Curve) -> dict[float, float]:
    return {at / len(bins): value for at, value in enumerate(bins)}


def _drawn(values: Mapping[Any, float]) -> dict[Any, Spread]:
    return {at: Spread(value, math.nan, 1) for at, value in values.items()}


def _first_sessions(name: str, curves: Mapping[str, Mapping[int, float]]) -> Sheet:
    rows = []
    for label, values in curves.items():
        best, last = max(values.values(), default=math.nan), values.get(len(values), math.nan)
        after = {f"round {n}": number(values.get(n), ".3f") for n in _SHOWN}
        rows.append({"model": label, **after, "best": number(best, ".3f"), "best - last": number(best - last, ".3f")})
    return Sheet(f"{name}: {METRIC} of first sessions after each round", rows, ["model"])


def _probabilities(found: FinishedRuns, name: str, cells: Mapping[str, Cell]) -> Sheet:
    rows = []
    for row in HISTOGRAMS:
        by_seed = found.summaries.get(cells[row], {})
        line = {"model": LABELS[row]}
        for of in PARTS:
            for least in (0.5, 0.9):
                values = [_above(summary, of, least) for summary in by_seed.values()]
                line[f"{of}\nfrom {least:g}"] = number(float(np.mean(values)) if values else None, ".3f")
        rows.append(line)
    return Sheet(f"{name}: shares with a probability of at least 0.5 and 0.9", rows, ["model"])


def _above(summary: Summary, of: str, least: float) -> float:
    found = summary["sessions"]["probabilities"]
    return sum(v for edge, v in zip(found["edges"][:-1], found[of], strict=True) if edge >= least - 1e-9)
