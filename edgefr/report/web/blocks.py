"""This section shows what each block in time gave, and what was kept of the earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgefr.metrics.continual import MASKS
from edgefr.report.blocks import block_table
from edgefr.report.verdict import FULL, ranked
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section

SHADES = 5


@dataclass(frozen=True)
class Matrix:
    """This is a(t, s): a row per model after block t, a cell per block s it was asked for, in one of five shades."""

    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    kept: tuple[tuple[str, str], ...]


def section(facts: Facts) -> Section | None:
    """Return the section; None for a run that is not over blocks."""
    summary = facts.summary
    if "continual" not in summary:
        return None
    names = [block["name"] for block in summary["blocks"]]
    matrices = [_matrix(mask, summary["continual"][mask], names) for mask in MASKS]
    return Section("blocks", "What is kept over time?", {"sheet": block_table(summary), "matrices": matrices})


def _matrix(mask: str, kept: dict[str, Any], names: list[str]) -> Matrix:
    values = [value for row in kept["matrix"] for value in row if math.isfinite(value)]
    highest = max(values, default=0.0) or 1.0
    rows = tuple(
        (name, tuple((f"{value:.4f}", min(SHADES - 1, int(SHADES * value / highest))) for value in row))
        for name, row in zip(names, kept["matrix"], strict=True)
    )
    told = {"learning average": "LA", "retained average": "RA", "harmonic mean": "HM", "forgetting": "forgetting"}
    found = tuple((words, f"{kept[key]:.4f}") for words, key in told.items())
    return Matrix(f"{ranked(kept['metric'], FULL)}, mask: {mask}", tuple(names), rows, found)
