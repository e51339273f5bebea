"""This section shows what a round costs: by device class, how well each figure is known, and one class at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from edgefr.config.sheet import count
from edgefr.fleet.policies import POLICIES
from edgefr.report.fleet import GRADES, measured, once, short, virtual
from edgefr.report.small_groups import FEW
from edgefr.report.verdict import ranked, ranking_of
from edgefr.report.web.chart import Axis
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Drawn, ReportTable, Section, SectionPart, graded, heading, text
from edgefr.report.web.section import facts as told

MEANINGS = {
    "measured": "on such a device, by us or in a named source",
    "proxy": "on a similar device, such as this machine",
    "derived": "from measured figures, by a formula",
    "estimate": "an informed guess",
}
"""What the kinds of figures mean."""
QUANTITIES = {"seconds": "seconds", "energy_j": "joules", "bytes": "MB moved", "memory_mb": "MB of memory"}
FAILURES = {
    "memory": "too little memory",
    "unavailable": "off the network",
    "download": "lost while downloading",
    "client": "lost while training",
    "upload": "lost while uploading",
    "deadline": "late",
    "not_needed": "no longer needed",
    "battery": "battery",
    "void": "round discarded",
    "stale": "too old",
}
DRAWN = {"seconds": ("s", "c0"), "energy_j": ("J", "c1")}
"""Quantities that are drawn: unit and colour."""
SPENT = "Costs per round are <strong>simulated</strong>: the number is the median, the bar the 10th to 90th"
KNOWN = (
    "“Took part” is the share of invitations that gave a counted update. Each quantity has the evidence grade of "
    "its weakest input: {}. Bytes are counted, not modelled.{}"
)


def section(facts: Facts) -> Section | None:
    """Return the section; None for a run that no device took part in."""
    if not facts.federated:
        return None
    fleet, how = facts.summary["fleet"], ranking_of(facts.summary)
    policy = POLICIES[fleet["policy"]].about if fleet["policy"] in POLICIES else fleet["policy"]
    rounds = f"{count(fleet['rounds'], 'round')} in {virtual(fleet['virtual_hours'])}"
    bundles = {row["class"]: row for row in facts.summary["bundles"]}
    panels = [("all", "all devices", _panel(fleet, {}, how))]
    panels += [(name, row["label"], _panel(row, bundles.get(name, {}), how)) for name, row in fleet["classes"].items()]
    first, totals = first_download(fleet), _totals(fleet)
    parts = [
        text(Markup("{}, {}. " + SPENT + " percentile.").format(rounds, policy)),
        _table(fleet),
        _known(fleet),
        text(first) if first else None,
        *([heading("The whole run, all devices together"), told(totals)] if totals else []),
        SectionPart("panels", panels),
    ]
    return Section.of("costs", "What do rounds cost the devices?", parts)


def _table(fleet: dict[str, Any]) -> SectionPart | None:
    """Return a row per device class, without columns in which all are the same."""
    classes, left, axes = fleet["classes"], _same(fleet), dict[str, Axis]()
    for quantity, (unit, _) in DRAWN.items():
        spreads = [spread for row in classes.values() if (spread := measured(row, quantity)) is not None]
        axes[quantity] = Axis.decades([value for spread in spreads for value in spread.values()], f" {unit}")
    rows = []
    for row in classes.values():
        cells: dict[str, Any] = {
            "device class": row["label"],
            "clients": f"{row['clients']:,}",
            "took part": share(row),
        }
        for quantity, words in QUANTITIES.items():
            cells[words] = _median(row, quantity)
            if quantity in axes:
                cells[f"{words}, drawn"] = _drawn(row, quantity, axes[quantity])
        cells["evidence"] = graded(_grade(row))
        rows.append({name: cell for name, cell in cells.items() if name not in left})
    title, left_aligned = "Cost of a round by device class", ("device class", "evidence")
    return ReportTable(title, rows, left_aligned, classes=list(classes), look="strips").part


def _same(fleet: dict[str, Any]) -> dict[str, str]:
    """Return columns in which all classes are the same, and what is said of each below the table."""
    rows = list(fleet["classes"].values())
    out = {}
    for quantity in ("bytes", "memory_mb"):
        found = {_median(row, quantity) for row in rows}
        if len(found) == 1:
            out[QUANTITIES[quantity]] = f"{found.pop()} {QUANTITIES[quantity]}"
    grades = {_grade(row) for row in rows}
    if len(grades) == 1:
        grade = grades.pop()
        out["evidence"] = f"evidence “{grade}”" if grade else ""
    return out


def _known(fleet: dict[str, Any]) -> SectionPart:
    """Say what is the same on every class, and how well figures are known."""
    same, mode = [said for said in _same(fleet).values() if said], fleet.get("cost", {}).get("mode")
    first = f"The same on every class: {', '.join(same)}. " if same else ""
    grades = Markup("; ").join(Markup("{} {}").format(graded(name), about) for name, about in MEANINGS.items())
    return text(Markup("{}" + KNOWN).format(first, grades, f" Step times: {mode}." if mode else ""), "note")


def _panel(row: dict[str, Any], bundle: dict[str, Any], how: str) -> list[SectionPart | None]:
    """Return all that is known of one device class."""
    facts = [(name, f"{row[name]:,}") for name in ("clients", "invited")]
    facts.append(("contributed", f"{row['contributed']:,} ({share(row)})"))
    facts += [(FAILURES.get(kind, kind), f"{number:,}") for kind, number in row["failures"].items()]
    facts += [("cost of a round", FEW)] if row.get("few_clients") else []
    facts += [*_worth(row, how), *_shipped(bundle)]
    rows = []
    for quantity, words in QUANTITIES.items():
        found = measured(row, quantity)
        ends = {q: "–" if found is None else short(found[q]) for q in ("p10", "p50", "p90")}
        made = "; ".join(f"{name}: {kind}" for name, kind in row.get("evidence", {}).get(quantity, {}).items())
        rows.append({"of a round": words, **ends, "made of": f"{made}{'counted' if quantity == 'bytes' else ''}"})
    return [told(facts), ReportTable("of a round", rows, ("of a round", "made of")).part]


def share(row: dict[str, Any]) -> str:
    """Return the share of invitations that ended in an update."""
    return f"{row['contributed'] / row['invited']:.0%}" if row["invited"] else "–"


def _median(row: dict[str, Any], quantity: str) -> str:
    found = measured(row, quantity)
    return "–" if found is None else short(found["p50"])


def _drawn(row: dict[str, Any], quantity: str, axis: Axis) -> Drawn:
    found = measured(row, quantity)
    if found is None:
        return Drawn(axis, None, DRAWN[quantity][1])
    said = f"{row['label']}: {short(found['p50'])} ({short(found['p10'])} to {short(found['p90'])})"
    return Drawn(axis, axis.strip(found["p50"], found["p10"], found["p90"], said), DRAWN[quantity][1])


def _grade(row: dict[str, Any]) -> str | None:
    return weakest([kind for of in row.get("evidence", {}).values() for kind in of.values()])


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


def weakest(kinds: Sequence[str]) -> str | None:
    """Return the worst of the grades that are named; a text may name several.

    >>> weakest(["measured", "derived, estimate"]), weakest(["proxy", "derived"])
    ('estimate', 'derived')
    """
    found = [kind for text in kinds for kind in text.split(", ") if kind in GRADES]
    return max(found, key=GRADES.index, default=None)


def _worth(row: dict[str, Any], how: str) -> list[tuple[str, str]]:
    """Return what the model is worth to the users of a class, in words by metric as ranked."""
    cells = {name: cell for name, cell in row.get("metrics", {}).items() if not name.startswith("Recall")}
    return [
        (
            ranked(name, how),
            f"{cell['mean']:.4f}, {cell['difference']:+.4f} from the overall mean ({count(cell['users'], 'user')})",
        )
        for name, cell in cells.items()
    ]


def _shipped(bundle: dict[str, Any]) -> list[tuple[str, str]]:
    if not bundle:
        return []
    fits = "fits" if bundle["fits"] else f"does not fit: {bundle['lacks']}"
    return [("bundle", f"{bundle['variant']}, {short(bundle['files_mb'])} MB, {fits}")]


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
