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
UNITS = {"seconds": "s", "energy_j": "J", "bytes": "MB"}


def fleet_table(fleet: dict[str, Any]) -> Sheet:
    """Show, per device class, who took part, who did not and why, and what a round cost (median, p90)."""
    known = "evidence\ntime, energy, RAM"
    rows = [
        _fleet_row(name, row) | {known: ", ".join(weakest([row["evidence"]]))} for name, row in fleet["classes"].items()
    ]
    policy = POLICIES[fleet["policy"]].about
    return Sheet(
        f"fleet: {count(fleet['rounds'], 'round')} in {virtual(fleet['virtual_hours'])}, {policy}",
        [*rows, _fleet_row("all", fleet) | {known: ""}],
        words=["device class", "failures", known],
        caption="simulated figures; each quantity has the grade of its weakest input" + _modes(fleet),
        rules=[len(rows) - 1],
    )


def _modes(fleet: dict[str, Any]) -> str:
    """Say how step times were made, and how far the two ways to make them are apart, where both are known."""
    found = fleet.get("cost", {})
    ratios = [step["ratio"] for step in found.get("steps", {}).values()]
    if not ratios:
        return ""
    span = " to ".join(dict.fromkeys(f"{ratio:.2g}" for ratio in (min(ratios), max(ratios))))
    return f"\nstep times: {found['mode']}; scaled host measurements give {span} times the analytic step time"


def virtual(hours: float) -> str:
    """Write a time on the virtual clock in a unit that fits.

    >>> virtual(0.001), virtual(0.05), virtual(36.0)
    ('3.6 virtual seconds', '3.0 virtual minutes', '1.5 virtual days')
    """
    for unit, size in (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= size:
            return f"{hours / size:.1f} virtual {unit}"
    return f"{hours * 3600:.1f} virtual seconds"


def _fleet_row(name: str, row: dict[str, Any]) -> dict[str, str]:
    cells = {"device class": name} | {key: f"{row[key]:,}" for key in ("clients", "invited", "contributed")}
    cells["failures"] = (
        ", ".join(f"{kind.replace('_', ' ')} {number}" for kind, number in row["failures"].items()) or "-"
    )
    columns = {"s/round": "seconds", "J/round": "energy_j", "MB/round": "bytes", "RAM MB": "memory_mb"}
    few = row.get("few_clients", False)
    return cells | {
        f"{column}\np50 (p90)": FEW if few else spread(measured(row, quantity)) for column, quantity in columns.items()
    }


def measured(row: Mapping[str, Any], quantity: str) -> dict[str, float] | None:
    """Return the percentiles of what a round took of a client; None where nobody did one.

    `bytes` are those that a client sends and receives, in MB.
    """
    found = row.get(quantity) or {}
    if quantity == "bytes":
        down, up = row.get("bytes_down") or {}, row.get("bytes_up") or {}
        known = [q for q in ("p10", "p50", "p90") if None not in (down.get(q), up.get(q))]
        found = {q: (down[q] + up[q]) / 1e6 for q in known}
    return found if found.get("p50") is not None else None


def typical(fleet: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Return the median seconds, joules and MB of a client in a round, where there are any, with their units."""
    found = ((measured(fleet, quantity), unit) for quantity, unit in UNITS.items())
    return [(values["p50"], unit) for values, unit in found if values is not None]


def slowest(fleet: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the class whose slowest tenth of rounds takes longest, with its name; None: nobody began one.

    By the median a class would be passed over that is quick in most rounds and holds up all others in some.
    """
    found = [(values["p90"], one) for one in fleet["classes"].items() if (values := measured(one[1], "seconds"))]
    return max(found, key=lambda one: one[0])[1] if found else None


def from_to(values: Iterable[float]) -> str:
    """Write the smallest and the largest, once where they look the same."""
    known = list(values)
    return " to ".join(dict.fromkeys(short(value) for value in (min(known), max(known))))


def once(fleet: Mapping[str, Any]) -> float:
    """Return the MB that a client downloads once, before its first round; 0 where nothing is, or nobody wrote it."""
    return float(fleet.get("travel", {}).get("once", 0.0)) / 1e6


def spread(values: Mapping[str, float] | None) -> str:
    """Write median and 90th percentile, a dash where there are none."""
    return "-" if values is None else f"{short(values['p50'])} ({short(values['p90'])})"


def short(value: float) -> str:
    """Write three digits, no powers of ten.

    >>> short(0.0123), short(66.14), short(12300.0)
    ('0.0123', '66.1', '12,300')
    """
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def weakest(found: Iterable[Mapping[str, Mapping[str, str]]]) -> tuple[str, ...]:
    """Name the weakest kind of figure behind time, energy and memory, over the evidence of some classes.

    >>> weakest([{"seconds": {"copy_gbs": "proxy"}, "energy_j": {"radio": "estimate"}, "memory_mb": {}}])
    ('proxy', 'estimate', '-')
    """
    whole = list(found)
    kinds = [[k for one in whole for text in one[q].values() for k in text.split(", ")] for q in MODELLED]
    return tuple(max(of, key=GRADES.index) if of else "-" for of in kinds)
