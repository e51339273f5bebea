"""These sections show tables of the terminal's report: of blocks, sessions, transfer, bundles, and all measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgefr.metrics.continual import MASKS
from edgefr.report.attack import attacked
from edgefr.report.blocks import block_table
from edgefr.report.tables import bundle_tables, group_table, metric_table, transfer_table, warnings
from edgefr.report.verdict import FULL, ranked, ranking_of
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section, SectionPart, sheet, text
from edgefr.report.web.section import facts as told

SHADES = 5


@dataclass(frozen=True)
class Matrix:
    """This is a(t, s): a row per model after block t, a cell per block s it was asked for, in one of five shades."""

    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    kept: tuple[tuple[str, str], ...]


def blocks(facts: Facts) -> Section | None:
    """Return what each block in time gave, and what was kept of the earlier ones; None for a run without blocks."""
    summary = facts.summary
    if "continual" not in summary:
        return None
    names = [block["name"] for block in summary["blocks"]]
    matrices = [_matrix(mask, summary["continual"][mask], names) for mask in MASKS]
    parts = [sheet(block_table(summary), "untitled"), SectionPart("matrices", matrices)]
    return Section.of("blocks", "What does the model retain over time?", parts)


def _matrix(mask: str, kept: dict[str, Any], names: list[str]) -> Matrix:
    values = [value for row in kept["matrix"] for value in row if math.isfinite(value)]
    highest = max(values, default=0.0) or 1.0
    rows = tuple(
        (name, tuple((f"{value:.4f}", min(SHADES - 1, int(SHADES * value / highest))) for value in row))
        for name, row in zip(names, kept["matrix"], strict=True)
    )
    averages = {"learning average": "LA", "retained average": "RA", "harmonic mean": "HM", "forgetting": "forgetting"}
    found = tuple((words, f"{kept[key]:.4f}") for words, key in averages.items())
    return Matrix(f"{ranked(kept['metric'], FULL)}, mask: {mask}", tuple(names), rows, found)


def attack(facts: Facts) -> Section | None:
    """Return what hostile clients came to; None for a run without."""
    said = attacked(facts.summary)
    return None if said is None else Section.of("attack", "What did attackers achieve?", [text(f"{said}.")])


def sessions(facts: Facts) -> Section | None:
    """Return repeats and new items apart, since a mean over both hides which was found; None without sessions."""
    if "sessions" not in facts.summary:
        return None
    about = facts.summary["sessions"]["statistics"].items()
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in about]
    return Section.of("sessions", "Repeats and new items", [sheet(group_table(facts.summary)), told(rows)])


def transfer(facts: Facts) -> Section | None:
    """Return what is left in the target of what was learned in the source; None for a run in one domain."""
    found = facts.summary.get("transfer")
    if not found:
        return None
    table = transfer_table(found, ranking_of(facts.summary))
    return Section.of("transfer", "From one domain to the other", [sheet(table)])


def bundles(facts: Facts) -> Section | None:
    """Return what each device class would run of the model; None where no bundles were asked for."""
    summary, rows = facts.summary, facts.summary["bundles"]
    parts = [text(f"No bundles were written: {summary['no_bundles']}.")] if summary.get("no_bundles") else []
    if rows:
        fit = f"{sum(row['fits'] for row in rows)} of {len(rows)} device classes have a bundle that fits them"
        what = "the model of this run as ONNX graphs and weights, without torch"
        parts += [text(f"{fit}: {what}."), *map(sheet, bundle_tables(rows))]
    if not parts:
        return None
    parts += [text(line, "warning") for line in warnings(summary) if "bundle" in line]
    return Section.of("bundles", "What is shipped?", parts)


def measures(facts: Facts) -> Section | None:
    """Return all test metrics of every stage and reference; None for a run over blocks, which has its own table."""
    summary = facts.summary
    if "continual" in summary:
        return None
    learned = summary.get("learning") or {split: {} for split in summary["stages"]}  # a run of an earlier version
    tables = [sheet(metric_table({**summary, "learning": learned}, split)) for split in summary["stages"]]
    return Section.of("measures", "All measurements", tables)
