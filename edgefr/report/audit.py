"""Audits are shown as two tables: the checks, and what attacks reached beside what knowing nothing reaches."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from edgefr.config.sheet import Sheet
from privacy.errors import InputError

SCHEMA = "edgefr.audit/2"


FILE = "audit.json"


ROW = {"attack", "unit", "eps_lb95", "claimed", "bounded", "counts", "looks", "of"}
"""What a finding must have to be kept."""


def read_bound(folder: Path) -> float | None:
    """Return the bound that audits of a run left in its folder; None if there was none, or none gave a bound.

    Raises `InputError` for a damaged file.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["schema"] != SCHEMA:
            raise ValueError(f"it is {report['schema']}")
        value = report["eps_lb95"]
        if value is None:
            return None
        if not (type(value) is float and 0 <= value < math.inf):
            raise ValueError(f"eps_lb95 is {str(value)[:20]!r}")
        return value
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}; run edgefr audit again") from None


def read_attacks(folder: Path) -> list[dict[str, Any]]:
    """Return what audits of a run have found so far, a row an attack; nothing where the file is missing or damaged."""
    try:
        report = json.loads((folder / FILE).read_text(encoding="utf-8"))
        rows = [row for row in report["attacks"] if report["schema"] == SCHEMA]
        return rows if all(set(row) >= ROW for row in rows) else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def audit_sheet(report: dict[str, Any]) -> Sheet:
    """Return one row per attack."""
    rows = [_row(finding) for finding in report["attacks"]]
    return Sheet(f"audit: {report['attacker']}", rows, ("attack", "unit"), caption=_caption(report))


def checks_sheet(report: dict[str, Any]) -> Sheet:
    """Return one row per check and way, with the worst that it saw."""
    rows = [_checked(found) for found in report["checks"]]
    caption = f"false-alarm rate of all checks together: {report['false_alarm']:.0e}"
    return Sheet("checks", rows, ("check", "of", "verdict", "worst"), caption=caption)


def _checked(found: dict[str, Any]) -> dict[str, str]:
    figure = found["figure"] if isinstance(found["figure"], str) else f"{found['figure']:.4g}"
    return {
        "check": found["check"],
        "of": found["way"],
        "verdict": "ok" if found["ok"] else "VIOLATED",
        "worst": f"{found['worst']}: {figure} {found['unit']}",
        "chance": f"{found['chance']:.1g}",
    }


def _row(found: dict[str, Any]) -> dict[str, str]:
    """Return a finding for the table. In brackets: what knowing nothing reaches in 95 of 100 cases."""
    return {
        "attack": found["attack"],
        "unit": found["unit"],
        "AUC [null]": _pair(found["auc"], found["auc_null"]),
        "best sign": _pair(found["best_auc"], found["best_auc_null"]),
        "TPR@1%FPR": _pair(found["tpr"], found["tpr_null"]),
        "eps >= [guaranteed]": "-" if found["eps_lb95"] is None else _bound(found),
        "trials, seed": "-" if found["eps_lb95"] is None else f"{found['of']}, {found['seed']}",
    }


def _pair(value: float | None, null: float | None) -> str:
    return "-" if value is None or null is None else f"{value:.3f} [{null:.3f}]"


def _bound(found: dict[str, Any]) -> str:
    claimed = found["claimed"] if isinstance(found["claimed"], str) else f"{found['claimed']:.3g}"
    rounds = "round" if found["releases"] == 1 else "rounds"
    return f"{found['eps_lb95']:.3g} [{claimed}, {found['releases']} {rounds}]"


def _caption(report: dict[str, Any]) -> str:
    """Say what the table cannot: attacks that were not made, and what may be claimed of several bounds."""
    lines = [f"{found['attack']}: not run: {found['note']}" for found in report["attacks"] if found["note"]]
    looks = sum(found["looks"] for found in report["attacks"])
    if report["eps_lb95"] is not None:
        lines.append(
            f"the strongest finding of all audits of the run; the largest of {looks} bounds supports the claim"
        )
        lines.append(f"{report['eps_lb95']:.3g}, at confidence 1 - 0.05 / {looks} each (Bonferroni)")
    lines.append(f"{report['adjacency']}, delta={report['delta']:g}; attackers know the seed but not the noise key")
    return "\n".join(lines)
