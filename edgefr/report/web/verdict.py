"""This section is the verdict: each learned model beside all that needs no learning, with intervals over users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgefr.metrics.settings import UNLEARNED, UNLEARNED_IN_CONTEXT
from edgefr.report import verdict as verdicts
from edgefr.report.verdict import RANKINGS, ranked
from edgefr.report.web.chart import Axis, Strip
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section

YES, NO, UNKNOWN, NOTHING = "yes", "no", "unknown", "nothing"


@dataclass(frozen=True)
class Found:
    """This is what one stage is worth on one split, from `learning` of a summary."""

    split: str
    stage: str
    record: dict[str, Any]

    @property
    def known(self) -> dict[str, dict[str, float]]:
        """Return the comparisons that have an interval, the best first."""
        against = {n: one for n, one in self.record["against"].items() if None not in one.values()}
        return dict(sorted(against.items(), key=lambda one: -one[1]["value"]))

    @property
    def answer(self) -> str:
        """Return whether learning helped: yes, no, nothing was learned, or unknown where nothing can be said."""
        if not self.record.get("learned", True):
            return NOTHING
        if not self.known:
            return UNKNOWN
        return YES if self.record["helped"] else NO

    @property
    def best(self) -> tuple[str, dict[str, float]]:
        """Return the name of the best that needs no learning, and the comparison with it."""
        return next(iter(self.known.items()))

    @property
    def unbeaten(self) -> list[str]:
        """Return what the model is not better than by more than chance."""
        return [named(name) for name, one in self.known.items() if not one["low"] > 0]

    @property
    def reached(self) -> str:
        """Return the metric with its ranking, and the value."""
        r = self.record
        return f"{ranked(r['metric'], RANKINGS.get(r['ranking'], r['ranking']))} {r['value']:.4f}"

    @property
    def measure(self) -> str:
        """Return the metric and on what it is measured."""
        r = self.record
        return f"{r['metric']}, {RANKINGS.get(r['ranking'], r['ranking'])}, {r['users']:,} users"


def found_in(summary: dict[str, Any]) -> list[Found]:
    """Return the verdicts of a summary, that of the run's last stage on its last split first."""
    learned = summary.get("learning") or {}
    last = (summary.get("split", "main"), summary["stage"])
    all_of = [Found(split, stage, record) for split, of in learned.items() for stage, record in of.items()]
    return sorted(all_of, key=lambda one: (one.split, one.stage) != last)


def named(name: str) -> str:
    """Return a reference's name as a sentence has it."""
    return f"the same model {name}" if name in (UNLEARNED, UNLEARNED_IN_CONTEXT) else name


def interval(one: dict[str, float]) -> str:
    """Write a difference with its interval.

    >>> interval({"difference": 0.5, "low": -0.1, "high": 1.0})
    '+0.5000 [-0.1000, +1.0000]'
    """
    return "{difference:+.4f} [{low:+.4f}, {high:+.4f}]".format_map(one)


@dataclass(frozen=True)
class Comparison:
    """This is one row of a verdict's table."""

    name: str
    value: float
    said: str
    beaten: bool
    strip: Strip | None


@dataclass(frozen=True)
class Verdict:
    """This is one verdict with its table: differences on one axis, zero among them."""

    found: Found
    words: str
    axis: Axis
    rows: tuple[Comparison, ...]


def verdict(found: Found) -> Verdict:
    """Return one verdict as the template shows it."""
    known = found.known
    axis = Axis.over([value for one in known.values() for value in (one["low"], one["high"])], most=4)
    rows = [
        Comparison(
            named(name),
            one["value"],
            interval(one),
            one["low"] > 0,
            axis.strip(one["difference"], one["low"], one["high"], f"against {named(name)}: {interval(one)}"),
        )
        for name, one in known.items()
    ]
    return Verdict(found, verdicts.Verdict.of(found.split, found.stage, found.record).words, axis, tuple(rows))


def section(facts: Facts) -> Section | None:
    """Return the section, if the run compared its model with anything."""
    found = found_in(facts.summary)
    if not found:
        return None
    several = len({one.split for one in found}) > 1
    first, *others = [verdict(one) for one in found]
    values = {"first": first, "others": others, "several": several, "level": found[0].record.get("level", 0.95)}
    return Section("verdict", "Does learning help?", values)
