"""A run over sessions adds to a summary: repeats and new items apart, probabilities, what first sessions keep."""

from __future__ import annotations

from typing import Any

from edgefr.config.sheet import Sheet
from edgefr.report.small_groups import FEW


def _few(group: dict[str, float]) -> dict[str, Any]:
    return {"users": FEW if group["users"] else 0}


def group_table(summary: dict[str, Any]) -> Sheet:
    """Return repeats and new items apart: a mean over both hides which of them was found."""
    found = summary["sessions"]["groups"]
    either = {name: None for values in next(iter(found.values())).values() for name in values}
    names = [name for name in either if name.startswith(("HR", "NDCG"))]
    rows = [
        {"targets": stage} | {f"{name}\n{group}": _cell(groups[group], name) for group in groups for name in names}
        for stage, groups in found.items()
    ]
    counts = {group: values["users"] for group, values in next(iter(found.values())).items()}
    return Sheet(
        f"repeats and new items, best round {summary['sessions']['best_round']}",
        rows,
        words=["targets"],
        caption=f"targets the user had had: {counts['seen']}; it had not: {counts['new']}; among sampled negatives",
        rules=[0],
        bold=[0],
    )


def _cell(values: dict[str, Any], metric: str) -> str:
    return f"{values[metric]:.4f}" if metric in values else values["users"] or "-"
