"""This section is the time line of one typical round: when how many devices had downloaded, trained and uploaded."""

from __future__ import annotations

from typing import Any

from edgefr.report.tables import count
from edgefr.report.web.chart import Axis, Chart, Line, Point, line, short
from edgefr.report.web.costs import FAILURES
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section

STAGES = {"downloaded": "had downloaded", "trained": "had trained", "uploaded": "had uploaded", "lost": "were lost"}


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
    return Section("rounds", "What happens in a round?", {"chart": chart, "facts": _facts(first, outcomes, end)})


def _clock(times: dict[str, list[float]], end: float) -> Axis:
    """Return the axis of seconds: logarithmic where the last device took far longer than most."""
    known = sorted(t for found in times.values() for t in found if t > 0)
    if known and end > 10 * known[len(known) // 2]:
        return Axis.decades([*known[len(known) // 20 :], end])
    return Axis.over([end], tight=True)


def _line(kind: str, times: list[float], end: float, x: Axis, y: Axis) -> Line:
    times = sorted(times)
    said = STAGES[kind]
    points = [Point(t, n, f"{short(t)} s: {count(n, 'device')} {said}") for n, t in enumerate(times, 1)]
    whole = [Point(0.0, 0.0, f"0 s: nobody {said.replace('were', 'was')}"), *points]
    whole.append(Point(end, len(times), f"at the end: {count(len(times), 'device')} {said}"))
    return line(said, list(STAGES).index(kind), whole, x, y, steps=True)


def _facts(first: dict[str, Any], outcomes: dict[str, int], end: float) -> list[tuple[str, str]]:
    """Return who was invited and what became of the invitations."""
    out = [("invited", f"{first['invited']:,}")] if "invited" in first else []
    out += [("contributed" if k == "ok" else FAILURES.get(k, k), f"{n:,}") for k, n in outcomes.items()]
    return [*out, ("closed after", f"{short(end)} s")]
