"""These functions pick what TransFR's tables and figures take from finished runs over two domains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from edgefr.report.pages import Spread
from edgefr.studies.reproductions.cells import Cell, Found, Pick, Summary
from edgefr.studies.reproductions.transfr.recipes import ROWS

Side = Literal["source", "target"]

COLD = ("finetune", "central", "federated")
"""How the model is called that rounds, or epochs, end with, before it meets what users have in the target."""
REFERENCES: Mapping[str, str] = {
    "text mean, cold": "text mean, of the source's items",
    "text mean": "text mean",
    "hybrid, cold": "hybrid: text of the source's items, popularity, recency",
    "hybrid": "hybrid: text, popularity, recency",
    "popularity": "popularity",
    "chance": "chance",
}
"""What learns nothing, by the name it has in a summary."""
COLD_NAMES = ("text mean, cold", "hybrid, cold", "popularity", "chance")
WARM_NAMES = ("text mean", "hybrid", "popularity", "chance")


def cold_stage(summary: Summary) -> str:
    """Return the name of a run's model as it is before it meets the target.

    >>> cold_stage({"stages": {"target": {"random": {}, "finetune": {}, "localtrain": {}}}})
    'finetune'
    """
    return next(name for name in COLD if name in summary["stages"]["target"])


def of_stage(side: Side, stage: str, metric: str) -> Pick:
    """Return what picks a test metric of a stage, or of a reference; NaN where it was not measured."""

    def pick(summary: Summary) -> float:
        found = {**summary["references"].get(side, {}), **summary["stages"].get(side, {})}
        return float(found.get(stage, {}).get(metric, math.nan))

    return pick


def cold(side: Side, metric: str) -> Pick:
    """Return what picks a test metric of the model before it meets the target (Table 4)."""
    return lambda summary: of_stage(side, cold_stage(summary), metric)(summary)


def warm(metric: str) -> Pick:
    """Return what picks a metric in the target of a model that knows what users have there; NaN where there is none."""

    def pick(summary: Summary) -> float:
        last = summary["stage"]
        return math.nan if last == cold_stage(summary) else of_stage("target", last, metric)(summary)

    return pick


def shown(side: Side, metric: str, row: str) -> Pick:
    """Return what picks a metric as Tables 5 and 6 have a row: TransFR after local training, others before."""

    def pick(summary: Summary) -> float:
        stage = summary["stage"] if ROWS[row].trains_there else cold_stage(summary)
        return of_stage(side, stage, metric)(summary)

    return pick


def lost(metric: str, row: str) -> Pick:
    """Return what picks delta, how many % of the source's metric are lost in the target (Tables 5 and 6)."""

    def pick(summary: Summary) -> float:
        before, after = (shown(side, metric, row)(summary) for side in ("source", "target"))
        return 100 * (1 - after / before) if before else math.nan

    return pick


def level(found: Found, cells: Iterable[Cell], side: Side, name: str, metric: str) -> Spread:
    """Return a reference's metric: the same for all rows, so of the one with most seeds that has it."""
    spreads = (found.spread(cell, of_stage(side, name, metric)) for cell in cells)
    return max(spreads, key=lambda spread: spread.number, default=Spread.of([]))
