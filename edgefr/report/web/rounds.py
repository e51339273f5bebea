"""This section is the time line of one typical round: when how many devices had downloaded, trained and uploaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edgefr.config.sheet import count
from edgefr.report.small_groups import FEW, FEWEST
from edgefr.report.web.chart import Axis, Chart, Line, Point, line, short
from edgefr.report.web.costs import FAILURES
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import ROOMY, ReportTable, Section, SectionPart, chart, heading, text
from edgefr.report.web.section import facts as told

STAGES = {"downloaded": "had downloaded", "trained": "had trained", "uploaded": "had uploaded", "lost": "were lost"}
HALF = (
    "Median seconds at which the devices of a class had downloaded, trained and uploaded. The class "
    "that is chosen above is marked."
)


@dataclass(frozen=True)
class Span:
    """This is one stage of a class's round, from and to in percent; `color` numbers a colour of the page."""

    low: float
    high: float
    color: int
    said: str


@dataclass(frozen=True)
class TimeLine:
    """This cell of a table has the stages of a round one after another."""

    axis: Axis
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
    classes = {name: row["label"] for name, row in facts.summary["fleet"]["classes"].items()}
    by_class = _by_class(happened, classes, start, x)
    parts = [chart(Chart(about, across, "devices", x, y, tuple(lines))), told(_facts(first, outcomes, end)), *by_class]
    return Section.of("rounds", "What happens in a round?", parts)


def _by_class(
    happened: Sequence[Mapping[str, Any]], classes: Mapping[str, str], start: float, x: Axis
) -> list[SectionPart | None]:
    """Return the round of every class of which a device started; nothing where events do not name classes."""
    found: dict[str, dict[str, list[float]]] = {}
    devices: dict[str, set[int]] = {}
    for event in (event for event in happened if "class" in event):
        stages = found.setdefault(event["class"], {})
        stages.setdefault(event["kind"], []).append(float(event["time"]) - start)
        devices.setdefault(event["class"], set()).add(event["client"])
    own = [name for name in classes if name in found]
    if not own:
        return []
    rows = [_class_round(classes[name], len(devices[name]), found[name], x) for name in own]
    table = ReportTable("The round by device class", rows, ["device class"], classes=own, look=ROOMY)
    legend = SectionPart("legend", ("downloading", "training", "uploading"))
    return [heading("The same round by device class"), text(HALF, "note"), table.part, legend]


def _class_round(label: str, devices: int, stages: Mapping[str, list[float]], x: Axis) -> dict[str, Any]:
    """Return the round of one class: its devices, how many uploaded, and the median time of each stage."""
    kinds, few = list(STAGES)[:3], devices < FEWEST
    ends = [median(stages[kind]) if kind in stages and not few else None for kind in kinds]
    spans, last = [], 0.0
    for color, (kind, end) in enumerate(zip(kinds, ends, strict=True)):
        if end is not None:
            said = f"{label}: half of those that {STAGES[kind]} had done so after {short(end)} s"
            spans.append(Span(x.place(last), x.place(max(end, last)), color, said))
            last = max(end, last)
    times = {f"{STAGES[kind]}, s": "–" if end is None else short(end) for kind, end in zip(kinds, ends, strict=True)}
    return {
        "device class": label,
        "devices at work": FEW if few else f"{devices:,}",
        "uploaded": "–" if few else f"{len(stages.get('uploaded', ())):,}",
        "time line, drawn": TimeLine(x, tuple(spans)),
        **times,
    }


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
    out = [("invited", f"{first['invited']:,}")] if "invited" in first else []
    out += [("contributed" if k == "ok" else FAILURES.get(k, k), f"{n:,}") for k, n in outcomes.items()]
    return [*out, ("closed after", f"{short(end)} s")]
