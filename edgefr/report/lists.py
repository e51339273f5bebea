"""Metrics of recommended lists have a table of their own, beside all references: only full ranking has them."""

from __future__ import annotations

from typing import Any

from edgefr.report.layout import Sheet
from edgefr.report.pages import number


def list_table(summary: dict[str, Any], split: str) -> Sheet | None:
    """Show the metrics of recommended lists on a split; None where none was measured."""
    full = {name: found for name, found in summary["full_ranking"].get(split, {}).items() if isinstance(found, dict)}
    sampled = {metric for found in summary["stages"][split].values() for metric in found}
    names = list(dict.fromkeys(metric for found in full.values() for metric in found if metric not in sampled))
    if not names:
        return None
    rows = [
        {"recommended": name} | {metric: number(found.get(metric)) for metric in names} for name, found in full.items()
    ]
    return Sheet(f"what is recommended on {split}, whoever finds something in it", rows, ["recommended"])
