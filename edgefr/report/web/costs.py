"""This section shows what a round costs: by device class, how well each figure is known, and one class at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgefr.fleet.policies import POLICIES
from edgefr.report.fleet import once
from edgefr.report.small_groups import FEW
from edgefr.report.tables import count
from edgefr.report.verdict import ranked, ranking_of
from edgefr.report.web.chart import Axis, Strip, short
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section

GRADES = {
    "measured": "on such a device, by us or in a source that is named",
    "derived": "from measured figures, by a formula",
    "proxy": "on something like it, such as this machine",
    "estimate": "an informed guess",
}
"""How well a figure is known, the best first, and what that means."""
QUANTITIES = {"seconds": "seconds", "energy_j": "joules", "bytes": "MB moved", "memory_mb": "MB of memory"}
FAILURES = {
    "memory": "too little memory",
    "unavailable": "off the network",
    "download": "lost while downloading",
    "client": "lost while training",
    "upload": "lost while uploading",
    "deadline": "late",
    "not_needed": "not needed any more",
    "battery": "battery",
    "void": "round thrown away",
    "stale": "too old",
}


@dataclass(frozen=True)
class Class:
    """This is one device class: who took part, what a round took (p10, p50, p90), how well that is known."""

    name: str
    label: str
    clients: int
    invited: int
    contributed: int
    failures: tuple[tuple[str, int], ...]
    spreads: dict[str, dict[str, float] | None]
    strips: dict[str, Strip | None]
    grades: dict[str, str]
    evidence: dict[str, dict[str, str]]
    worth: tuple[tuple[str, str], ...]

    @property
    def grade(self) -> str | None:
        """Return how well the figure that is known worst is known."""
        return weakest(list(self.grades.values()))

    @property
    def share(self) -> str:
        """Return the share of invitations that ended in an update."""
        return f"{self.contributed / self.invited:.0%}" if self.invited else "–"

    def typical(self, quantity: str) -> str:
        """Return the median of a quantity."""
        spread = self.spreads[quantity]
        return "–" if spread is None else short(spread["p50"])


def section(facts: Facts) -> Section | None:
    """Return the section; None for a run that no device took part in."""
    if not facts.federated:
        return None
    fleet = facts.summary["fleet"]
    axes = {name: _axis(fleet, name, unit) for name, unit in (("seconds", "s"), ("energy_j", "J"))}
    how = ranking_of(facts.summary)
    bundles = {row["class"]: row for row in facts.summary["bundles"]}
    classes = [_class(name, row, axes, bundles.get(name, {}), how) for name, row in fleet["classes"].items()]
    return Section(
        "costs",
        "What does it cost the devices?",
        {
            "all": _class("all", {"label": "all devices", **fleet}, axes, {}, how),
            "classes": classes,
            "axes": axes,
            "grades": GRADES,
            "failures": [(FAILURES.get(kind, kind), number) for kind, number in fleet["failures"].items()],
            "rounds": f"{count(fleet['rounds'], 'round')} in {virtual(fleet['virtual_hours'])}",
            "policy": POLICIES[fleet["policy"]].about if fleet["policy"] in POLICIES else fleet["policy"],
            "mode": fleet.get("cost", {}).get("mode"),
            "totals": _totals(fleet),
            "shown": _columns(classes),
            "same": _same(classes),
            "first": first_download(fleet),
        },
    )


def _columns(classes: Sequence[Class]) -> list[str]:
    """Return the columns in which classes differ; one that is the same in every row is said once, below."""
    columns = {name: {row.typical(name) for row in classes} for name in ("bytes", "memory_mb")}
    columns["grade"] = {row.grade or "" for row in classes}
    return [name for name, values in columns.items() if len(values) > 1]


def _same(classes: Sequence[Class]) -> str:
    """Say what is the same on every class."""
    first, shown = classes[0], _columns(classes)
    told = [f"{first.typical(name)} {QUANTITIES[name]}" for name in ("bytes", "memory_mb") if name not in shown]
    grade = f"the weakest figure is of grade “{first.grade}”" if "grade" not in shown and first.grade else None
    found = [*told, *([grade] if grade else [])]
    return f"The same on every class: {', '.join(found)}. " if found else ""


def typical(fleet: dict[str, Any]) -> list[tuple[float, str]]:
    """Return the median seconds, joules and MB of a device in a round, where there are any."""
    spreads = {"s": _spread(fleet, "seconds"), "J": _spread(fleet, "energy_j"), "MB": _spread(fleet, "bytes")}
    return [(spread["p50"], unit) for unit, spread in spreads.items() if spread is not None]


def first_download(fleet: dict[str, Any]) -> str | None:
    """Say what is downloaded once, what every round moves, and that both are in the figures; None where nothing is."""
    travel = fleet.get("travel", {})
    if not once(fleet) or not travel["fetched_once"]:
        return None
    each = (travel["down"] + travel["up"]) / 1e6
    return (
        f"Before its first round a device also downloads {short(once(fleet))} MB, once: what the model reads and never "
        f"changes. Each further round moves {short(each)} MB. The figures above mix both: "
        f"{count(travel['fetched_once'], 'device')} had a first round in this run, and the more rounds there are, the "
        "less it weighs in a median."
    )


def slowest(fleet: dict[str, Any]) -> tuple[str, float] | None:
    """Return the class whose slowest tenth of rounds takes longest, and from how many seconds on; None: nobody began.

    By the median a class would be passed over that is quick in most rounds and holds up all others in some.
    """
    spreads = ((row["label"], _spread(row, "seconds")) for row in fleet["classes"].values())
    known = [(label, spread["p90"]) for label, spread in spreads if spread is not None]
    return max(known, key=lambda one: one[1], default=None)


def virtual(hours: float) -> str:
    """Write a time on the virtual clock in a unit that fits.

    >>> virtual(0.05), virtual(36.0)
    ('3.0 virtual minutes', '1.5 virtual days')
    """
    for unit, size in (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= size:
            return f"{hours / size:.1f} virtual {unit}"
    return f"{hours * 3600:.1f} virtual seconds"


def weakest(kinds: Sequence[str]) -> str | None:
    """Return the worst of the grades that are named; a text may name several.

    >>> weakest(["measured", "derived, estimate"])
    'estimate'
    """
    order = list(GRADES)
    found = [kind for text in kinds for kind in text.split(", ") if kind in order]
    return max(found, key=order.index, default=None)


def _class(name: str, row: dict[str, Any], axes: dict[str, Axis], bundle: dict[str, Any], how: str) -> Class:
    spreads = {quantity: _spread(row, quantity) for quantity in QUANTITIES}
    evidence = row.get("evidence", {})
    graded = {quantity: weakest(list(of.values())) for quantity, of in evidence.items()}
    strips = {
        quantity: None
        if (spread := spreads[quantity]) is None
        else axis.strip(spread["p50"], spread["p10"], spread["p90"], f"{row['label']}: {said(spread)}")
        for quantity, axis in axes.items()
    }
    return Class(
        name,
        row["label"],
        row["clients"],
        row["invited"],
        row["contributed"],
        tuple((FAILURES.get(kind, kind), number) for kind, number in row["failures"].items()),
        spreads,
        strips,
        {quantity: grade for quantity, grade in graded.items() if grade is not None},
        evidence,
        (*((("what a round took", FEW),) if row.get("few_clients") else ()), *_worth(row, how), *_shipped(bundle)),
    )


def said(spread: dict[str, float]) -> str:
    """Write a spread: the median, and from the 10th to the 90th percentile.

    >>> said({"p10": 1.0, "p50": 2.0, "p90": 4.0})
    '2 (1 to 4)'
    """
    return f"{short(spread['p50'])} ({short(spread['p10'])} to {short(spread['p90'])})"


def _worth(row: dict[str, Any], how: str) -> list[tuple[str, str]]:
    """Return what the model is worth to the users of a class, in words by metric as ranked."""
    cells = {name: cell for name, cell in row.get("metrics", {}).items() if not name.startswith("Recall")}
    return [
        (
            ranked(name, how),
            f"{cell['mean']:.4f}, {cell['difference']:+.4f} to everybody's mean ({count(cell['users'], 'user')})",
        )
        for name, cell in cells.items()
    ]


def _shipped(bundle: dict[str, Any]) -> list[tuple[str, str]]:
    if not bundle:
        return []
    fits = "fits" if bundle["fits"] else f"does not fit: {bundle['lacks']}"
    return [("bundle", f"{bundle['variant']}, {short(bundle['files_mb'])} MB, {fits}")]


def _spread(row: dict[str, Any], quantity: str) -> dict[str, float] | None:
    """Return the percentiles of a quantity; bytes, down and up together, in MB."""
    if quantity == "bytes":
        down, up = row.get("bytes_down") or {}, row.get("bytes_up") or {}
        if down.get("p50") is None or up.get("p50") is None:
            return None
        return {q: (down[q] + up[q]) / 1e6 for q in ("p10", "p50", "p90")}
    spread = row.get(quantity) or {}
    return spread if spread.get("p50") is not None else None


def _axis(fleet: dict[str, Any], quantity: str, unit: str) -> Axis:
    spreads = [_spread(row, quantity) for row in fleet["classes"].values()]
    return Axis.decades([value for spread in spreads if spread is not None for value in spread.values()], f" {unit}")


def _totals(fleet: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the whole run took of all devices together."""
    if "total_seconds" not in fleet:
        return []
    moved = (fleet["total_bytes_down"] + fleet["total_bytes_up"]) / 1e9
    return [
        ("device time", f"{short(fleet['total_seconds'] / 3600)} h"),
        ("energy", f"{short(fleet['total_energy_j'] / 3600)} Wh"),
        ("traffic", f"{short(moved)} GB"),
    ]
