"""Figure 2 shows what is still known of first sessions after every round, and which probabilities test items get."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Spread, number
from edgefr.studies.reproductions.cells import Ask, FinishedRuns
from edgefr.studies.reproductions.fcucr.recipes import FIRST_SESSION, LABELS
from edgefr.studies.reproductions.tables import Made, Panel

METRIC = "HR@10"
HISTOGRAMS = ("fcucr-sasrec", "sasrec")
PARTS = ("targets", "negatives")
_SHOWN = (1, 2, 5, 10, 20, 30, 40)


def figure_2(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """(a) a curve per method, (b) and (c) histograms of FCUCR and of its backbone alone; all are means over seeds."""
    cells = ask.cells(data, FIRST_SESSION)
    known = {row: [one["sessions"] for one in found.summaries.get(c, {}).values()] for row, c in cells.items()}
    curves = {LABELS[row]: dict(enumerate(curve(some), 1)) for row, some in known.items()}
    parts = {LABELS[row]: [one["probabilities"] for one in known[row]] for row in HISTOGRAMS}
    bins = {row: {of: _shares([one[of] for one in some]) for of in PARTS} for row, some in parts.items()}
    told: list[tuple[str, str, Mapping[Any, float]]]
    told = [(row, f"first session {METRIC}", values) for row, values in curves.items()]
    told += [(row, f"share of {of} from probability", own) for row, by in bins.items() for of, own in by.items()]
    records = [
        {"data": data, "row": row, "measure": measure, "at": at, "value": value}
        for row, measure, values in told
        for at, value in values.items()
    ]
    panels = [Panel(f"{data}: first sessions", "round", METRIC, {row: _drawn(of) for row, of in curves.items()})]
    for row, by in bins.items():
        drawn = {of: _drawn(values) for of, values in by.items()}
        panels.append(Panel(f"{data}: {row}", "probability", "share", drawn, kind="histogram"))
    high = list[dict[str, str]]()
    for row, some in parts.items():
        line = {"model": row}
        for of, least in product(PARTS, (0.5, 0.9)):
            values = [_above(one, of, least) for one in some]
            line[f"{of}\nfrom {least:g}"] = number(float(np.mean(values)) if values else None, ".3f")
        high.append(line)
    shares = Sheet(f"{data}: shares with a probability of at least 0.5 and 0.9", high, ["model"])
    return Made([_first_sessions(data, curves), shares], records, panels=panels)


def curve(sessions: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the mean over seeds of first sessions' HR@10 after each round, as long as the shortest run has."""
    kept = [one["first_session"].get(METRIC, []) for one in sessions]
    length = min(map(len, kept), default=0)
    return [] if not length else list(np.mean([values[:length] for values in kept], axis=0))


def _shares(kept: Sequence[Sequence[float]]) -> dict[float, float]:
    """Return the mean over seeds of the share per bin, by where the bin begins; empty without a run."""
    bins = list(np.mean(kept, axis=0)) if kept else []
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


def _above(found: Mapping[str, Any], of: str, least: float) -> float:
    return sum(v for edge, v in zip(found["edges"][:-1], found[of], strict=True) if edge >= least - 1e-9)
