"""Fairness by device class compares what the model is worth to those with a fast device and with a slow one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefr.config.sheet import Sheet
from edgefr.report.small_groups import FEW, FEWEST, WHY


def over_runs(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return by metric, of the `fairness` of several runs, the worst class's mean and the spread.

    Runs count that had classes with enough users.

    >>> over_runs([{"HR@5": {"worst": {"mean": 0.1}, "spread": 0.3}}, {"HR@5": {"worst": None, "spread": None}}])
    {'HR@5': {'worst': [0.1], 'spread': [0.3]}}
    """
    rows = {metric: [row[metric] for row in found if row[metric]["worst"] is not None] for metric in found[0]}
    return {
        metric: {"worst": [row["worst"]["mean"] for row in known], "spread": [row["spread"] for row in known]}
        for metric, known in rows.items()
        if known
    }


def fairness_table(fleet: dict[str, Any], how: str) -> Sheet | None:
    """Show by device class participation, tested users, metrics ranked so, and how far from everybody's mean."""
    fairness = {name: row for name, row in fleet.get("fairness", {}).items() if not name.startswith("Recall")}
    if not fairness:
        return None
    rows = [_row(name, row, list(fairness)) for name, row in fleet["classes"].items()]
    first = next(iter(fairness))
    every = {"device class": "all", "rounds\ncontributed": "", "tested\nusers": f"{fairness[first]['users']:,}"}
    for metric, row in fairness.items():
        every |= {f"{metric}\n± s.e.": f"{row['mean']:.4f}", f"{metric}\nminus mean": ""}
    why = [WHY] if any(row.get("few") for row in fleet["classes"].values()) else []
    return Sheet(
        f"model quality by device class ({how})",
        [*rows, every],
        words=["device class"],
        caption="\n".join([*(_line(metric, row) for metric, row in fairness.items()), *why]),
        rules=[len(rows) - 1],
    )


def _row(name: str, row: dict[str, Any], metrics: list[str]) -> dict[str, str]:
    found = row["metrics"]
    tested = f"{next(iter(found.values()))['users']:,}" if found else FEW if row.get("few") else "0"
    share = "-" if row["participation"] is None else f"{row['participation']:.1%}"
    cells = {"device class": name, "rounds\ncontributed": share, "tested\nusers": tested}
    for metric in metrics:
        cell = found.get(metric)
        error = "" if cell is None or cell["standard_error"] is None else f" ± {cell['standard_error']:.4f}"
        cells[f"{metric}\n± s.e."] = "-" if cell is None else f"{cell['mean']:.4f}{error}"
        cells[f"{metric}\nminus mean"] = "-" if cell is None else f"{cell['difference']:+.4f}"
    return cells


def _line(metric: str, row: dict[str, Any]) -> str:
    """Say one metric in words: worst and best class, and what goes along with it."""
    if row["worst"] is None:
        return f"{metric}: no class has {FEWEST} tested users, so no worst class is named"
    p, correlation = row["p_equal"], row["participation_correlation"]
    chance = "" if p is None else f" (one-way ANOVA over these classes: p = {p:.2g})"
    along = "" if correlation is None else f"; rank correlation with rounds contributed {correlation:+.2f}"
    worst, best = row["worst"], row["best"]
    return (
        f"{metric}: worst {worst['class']} {worst['mean']:.4f}, best {best['class']} {best['mean']:.4f} "
        f"(of classes with {FEWEST} users), spread {row['spread']:.4f}{chance}{along}"
    )
