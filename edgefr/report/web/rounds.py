"""This section is the time line of one typical round: when how many devices had downloaded, trained and uploaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edgefr.report.small_groups import FEW, FEWEST
from edgefr.report.tables import count
from edgefr.report.web.chart import Axis, Chart, Line, Point, line, short
from edgefr.report.web.costs import FAILURES
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section

STAGES = {"downloaded": "had downloaded", "trained": "had trained", "uploaded": "had uploaded", "lost": "were lost"}


@dataclass(frozen=True)
class Span:
    """This is one stage of a class's round, from and to in percent; `color` numbers a colour of the page."""

    low: float
    high: float
    color: int
    said: str


@dataclass(frozen=True)
class ClassRound:
    """This is the round of one device class: its devices, how many uploaded, and the median time of each stage."""

    name: str
    label: str
    devices: str
    uploaded: str
    times: tuple[str, ...]
    spans: tuple[Span, ...]


def section(facts: Facts) -> Section | None:
    """Return the section; None where no round logged its clients."""
    events = facts.typical_round()
    happened = [event for event in events if event["kind"] in STAGES]
    if not happened:
        return None
    first, last = events[0], events[-1]
    start, end = float(first["time"]), float(last["time"]) - float(first["time"])
    outcomes = last.get("outcomes", {})
    times = {kind: [float(e["time"]) - start for e in happened if e["kind"] == kind] for kind in STAGES}
    times = {kind: found for kind, found in times.items() if found}
    x, y = _clock(times, end), Axis.over([0.0, *(float(len(found)) for found in times.values())], whole=True)
    lines = [_line(kind, times[kind], end, x, y) for kind in STAGES if kind in times]
    about = (
        f"Round {first['round']}, which took the median time of all rounds, {short(end)} s: devices by what they had "
        "done, over the seconds since its start"
    )
    across = f"seconds since the start of the round{', in factors of ten' if x.log else ''}"
    chart = Chart(about, across, "devices", x, y, tuple(lines))
    classes = {name: row["label"] for name, row in facts.summary["fleet"]["classes"].items()}
    values = {"chart": chart, "facts": _facts(first, outcomes, end), "axis": x, "shown": list(STAGES.values())[:3]}
    return Section("rounds", "What happens in a round?", {**values, "rows": _by_class(happened, classes, start, x)})


def _by_class(
    happened: Sequence[Mapping[str, Any]], classes: Mapping[str, str], start: float, x: Axis
) -> list[ClassRound]:
    """Return the round of every class of which a device started; none where events do not name classes."""
    found: dict[str, dict[str, list[float]]] = {}
    devices: dict[str, set[int]] = {}
    for event in (event for event in happened if "class" in event):
        stages = found.setdefault(event["class"], {})
        stages.setdefault(event["kind"], []).append(float(event["time"]) - start)
        devices.setdefault(event["class"], set()).add(event["client"])
    return [
        _class_round(name, label, len(devices[name]), found[name], x)
        for name, label in classes.items()
        if name in found
    ]


def _class_round(name: str, label: str, devices: int, stages: Mapping[str, list[float]], x: Axis) -> ClassRound:
    kinds = list(STAGES)[:3]
    if devices < FEWEST:
        return ClassRound(name, label, FEW, "–", ("–",) * len(kinds), ())
    ends = [median(stages[kind]) if kind in stages else None for kind in kinds]
    spans, last = [], 0.0
    for color, (kind, end) in enumerate(zip(kinds, ends, strict=True)):
        if end is not None:
            said = f"{label}: half of those that {STAGES[kind]} had done so after {short(end)} s"
            spans.append(Span(x.place(last), x.place(max(end, last)), color, said))
            last = max(end, last)
    times = tuple("–" if end is None else short(end) for end in ends)
    return ClassRound(name, label, f"{devices:,}", f"{len(stages.get('uploaded', ())):,}", times, tuple(spans))


def _clock(times: dict[str, list[float]], end: float) -> Axis:
    """Return the axis of seconds: logarithmic where the last device took far longer than most."""
    known = sorted(t for found in times.values() for t in found if t > 0)
    if known and end > 10 * known[len(known) // 2]:
        return Axis.decades([*known[len(known) // 20 :], end])
    return Axis.over([end], tight=True)


def _line(kind: str, times: list[float], end: float, x: Axis, y: Axis) -> Line:
    times = sorted(times)
    said = STAGES[kind]
    tenth = list(enumerate(times, 1))[FEWEST - 1 :: FEWEST]  # no point is of a few devices
    points = [Point(t, n, f"{short(t)} s: {count(n, 'device')} {said}") for n, t in tenth]
    whole = [Point(0.0, 0.0, f"0 s: nobody {said.replace('were', 'was')}"), *points]
    whole.append(Point(end, len(times), f"at the end: {count(len(times), 'device')} {said}"))
    return line(said, list(STAGES).index(kind), whole, x, y, steps=True)


def _facts(first: dict[str, Any], outcomes: dict[str, int], end: float) -> list[tuple[str, str]]:
    """Return who was invited and what became of the invitations."""
    out = [("invited", f"{first['invited']:,}")] if "invited" in first else []
    out += [("contributed" if k == "ok" else FAILURES.get(k, k), f"{n:,}") for k, n in outcomes.items()]
    return [*out, ("closed after", f"{short(end)} s")]
