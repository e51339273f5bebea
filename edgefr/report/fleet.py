"""This table says what rounds took by device class; figures of a fleet are written in one way here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefr.config.sheet import Sheet, count
from edgefr.fleet.evidence import EVIDENCE
from edgefr.fleet.policies import POLICIES
from edgefr.fleet.spec import FleetFile
from edgefr.fleet.table import table
from edgefr.report.small_groups import FEW


def device_table(spec: FleetFile) -> Sheet:
    """Show the device classes of a fleet file."""
    rows = table(spec)
    words = ["class", "label", "cores", "networks", "evidence"]
    caption = "evidence: M measured, P measured on a named proxy, D derived by arithmetic, E estimate"
    return Sheet("device classes", rows, words=words, caption=caption)


GRADES = list(EVIDENCE.values())
"""Kinds of figures, the best known first."""
MODELLED = ("seconds", "energy_j", "memory_mb")


def fleet_table(fleet: dict[str, Any]) -> Sheet:
    """Show, per device class, who took part, who did not and why, and what a round cost (median, p90)."""
    known = "known from\ntime, energy, RAM"
    rows = [
        _fleet_row(name, row) | {known: ", ".join(weakest([row["evidence"]]))} for name, row in fleet["classes"].items()
    ]
    policy = POLICIES[fleet["policy"]].about
    return Sheet(
        f"fleet: {count(fleet['rounds'], 'round')} in {_virtual(fleet['virtual_hours'])}, {policy}",
        [*rows, _fleet_row("all", fleet) | {known: ""}],
        words=["device class", "failures", known],
        caption="simulated figures; a quantity is no better known than its weakest input" + _modes(fleet),
        rules=[len(rows) - 1],
    )


def _modes(fleet: dict[str, Any]) -> str:
    """Say how step times were made, and how far the two ways to make them are apart, where both are known."""
    found = fleet.get("cost", {})
    ratios = [step["ratio"] for step in found.get("steps", {}).values()]
    if not ratios:
        return ""
    span = " to ".join(dict.fromkeys(f"{ratio:.2g}" for ratio in (min(ratios), max(ratios))))
    return f"\nstep times: {found['mode']}; a measured host, scaled, says {span} times the analytic model's step"


def _virtual(hours: float) -> str:
    """Write a time on the virtual clock in a unit that fits."""
    for unit, size in (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= size:
            return f"{hours / size:.1f} virtual {unit}"
    return f"{hours * 3600:.1f} virtual seconds"


def _fleet_row(name: str, row: dict[str, Any]) -> dict[str, str]:
    cells = {"device class": name} | {key: f"{row[key]:,}" for key in ("clients", "invited", "contributed")}
    cells["failures"] = (
        ", ".join(f"{kind.replace('_', ' ')} {number}" for kind, number in row["failures"].items()) or "-"
    )
    spreads = {
        "s/round": row.get("seconds"),
        "J/round": row.get("energy_j"),
        "MB/round": megabytes(row),
        "RAM MB": row.get("memory_mb"),
    }
    few = row.get("few_clients", False)
    return cells | {f"{column}\np50 (p90)": FEW if few else spread(values) for column, values in spreads.items()}


def megabytes(row: Mapping[str, Any]) -> dict[str, float] | None:
    """Return what a client sends and receives in a round, MB; None where nobody did."""
    down, up = row.get("bytes_down"), row.get("bytes_up")
    if not down or not up:
        return None
    return {q: (down[q] + up[q]) / 1e6 for q in ("p50", "p90") if down.get(q) is not None and up.get(q) is not None}


def once(fleet: Mapping[str, Any]) -> float:
    """Return the MB that a client downloads once, before its first round; 0 where nothing is, or nobody wrote it."""
    return float(fleet.get("travel", {}).get("once", 0.0)) / 1e6


def spread(values: Mapping[str, float] | None) -> str:
    """Write median and 90th percentile, a dash where there are none."""
    if not values or values.get("p50") is None:
        return "-"
    return f"{short(values['p50'])} ({short(values['p90'])})"


def short(value: float) -> str:
    """Write three digits, no powers of ten: 0.0123, 66.1, 12,300."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def weakest(found: Iterable[Mapping[str, Mapping[str, str]]]) -> tuple[str, ...]:
    """Name the weakest kind of figure behind time, energy and memory, over the evidence of some classes.

    >>> weakest([{"seconds": {"copy_gbs": "proxy"}, "energy_j": {"radio": "estimate"}, "memory_mb": {}}])
    ('proxy', 'estimate', '-')
    """
    whole = list(found)
    kinds = [[k for one in whole for text in one[q].values() for k in text.split(", ")] for q in MODELLED]
    return tuple(max(of, key=GRADES.index) if of else "-" for of in kinds)
