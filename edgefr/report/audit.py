"""Audits are shown as a table: what each attack reached beside what knowing nothing reaches."""

from __future__ import annotations

from typing import Any

from edgefr.report.layout import Sheet


def audit_sheet(report: dict[str, Any]) -> Sheet:
    """Return one row per attack."""
    rows = [_row(finding) for finding in report["attacks"]]
    return Sheet(f"audit: {report['attacker']}", rows, ("attack", "unit"), caption=_caption(report))


def _row(found: dict[str, Any]) -> dict[str, str]:
    """Return a finding for the table. In brackets: what knowing nothing reaches in 95 of 100 cases."""
    return {
        "attack": found["attack"],
        "unit": found["unit"],
        "AUC [null]": _pair(found["auc"], found["auc_null"]),
        "best sign": _pair(found["best_auc"], found["best_auc_null"]),
        "TPR@1%FPR": _pair(found["tpr"], found["tpr_null"]),
        "eps >= [guaranteed]": "-" if found["eps_lb95"] is None else _bound(found),
    }


def _pair(value: float | None, null: float | None) -> str:
    return "-" if value is None or null is None else f"{value:.3f} [{null:.3f}]"


def _bound(found: dict[str, Any]) -> str:
    """Return the lower bound, and what accounting guarantees for as many releases of a client."""
    claimed = found["claimed"] if isinstance(found["claimed"], str) else f"{found['claimed']:.3g}"
    rounds = "round" if found["releases"] == 1 else "rounds"
    return f"{found['eps_lb95']:.3g} [{claimed}, {found['releases']} {rounds}]"


def _caption(report: dict[str, Any]) -> str:
    """Say what the table cannot: attacks that were not made, and a bound above what is guaranteed."""
    lines = [f"{found['attack']}: not made: {found['note']}" for found in report["attacks"] if found["note"]]
    for found in report["attacks"]:
        if found["exceeds"]:
            lines.append(f"{found['attack']}: MORE LEAKS THAN IS GUARANTEED: mechanism or accounting is at fault")
    lines.append(
        f"{report['adjacency']}, delta={report['delta']:g}; the run's seed is known: this is about the algorithm"
    )
    return "\n".join(lines)
