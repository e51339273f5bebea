"""The four answers at the top of a page: does it help, on these devices, at this privacy, at what cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgefr.config.sheet import count
from edgefr.metrics.settings import UNLEARNED
from edgefr.report.fleet import once, short, slowest, typical, virtual
from edgefr.report.verdict import NO, NOTHING, UNKNOWN, YES, every_verdict
from edgefr.report.verdict import NOT_YET as NOT_LEARNED
from privacy.report import MEANINGLESS, label
from privacy.sentence import NOT_YET, TOGETHER, nothing_yet, would_cost

GOOD, BAD, NEUTRAL = "good", "bad", "neutral"


@dataclass(frozen=True)
class Answer:
    """An answer to a question: a few words, then a sentence. `tone`: good, bad or neutral."""

    question: str
    words: str
    why: str
    tone: str = NEUTRAL


def answers(summary: dict[str, Any]) -> list[Answer]:
    """Return the answers that a run can give; a central reference has neither devices nor privacy."""
    if "central" in summary:
        return [helps(summary), Answer("On devices?", "Not on devices", summary["central"]["note"] + ".")]
    served = summary["privacy"].get("served", 0)
    return [helps(summary), devices(summary), privacy(summary["privacy"]), cost(summary["fleet"], served)]


def helps(summary: dict[str, Any]) -> Answer:
    """Say whether learning helped, and beside what."""
    question, found = "Does learning help?", every_verdict(summary)
    if not found:
        return Answer(question, "Not compared", "The run measured no baseline.")
    first = found[0]
    if first.answer == NOTHING:
        return Answer(question, capitals(NOT_LEARNED), f"{first.reached} is the value before training.")
    if first.answer == UNKNOWN:
        return Answer(question, "Unknown", f"Too few users were tested ({first.measure}).")
    best, value = first.known[0], first.reached
    beside = f"{best} against {best.said} ({best.value:.4f}), the best baseline"
    after = "".join(
        f" {capitals(said)}." for said in (first.disagreement, first.ceiling, first.advice(summary)) if said
    )
    if first.answer == YES:
        return Answer(question, "Yes", f"{value}: {beside}.{after}", GOOD)
    assert first.answer == NO
    before = next((row for row in first.known if row.name == UNLEARNED), None)
    if before is not None and before.beaten:
        value += f" is above the model before any round ({before}), but not above the baselines"
    others = [row.said for row in first.known if not row.beaten and row is not best]
    told = _listed(others) if 0 < len(others) < 3 else f"{len(others)} other baselines"
    more = f"; it is not better than {told} either" if others else ""
    return Answer(question, "No", f"{value}: {beside}{more}.{after}", BAD)


def devices(summary: dict[str, Any]) -> Answer:
    """Say who took part, and which classes never did."""
    fleet, question = summary["fleet"], "On which devices?"
    served = summary["privacy"].get("served", 0)
    if not fleet["invited"]:
        if served:
            return Answer(question, f"Real ones, in {count(served, 'served round')}", "No rounds were simulated.")
        return Answer(question, "No client was invited", "The run had no rounds.")
    words = f"{fleet['contributed'] / fleet['invited']:.0%} of client invitations gave an update"
    out = [one["label"] for one in fleet["classes"].values() if one["invited"] and not one["contributed"]]
    left = f" Never contributed: {_listed(out)}." if out else " Every class that was invited contributed."
    who = f"{count(fleet['clients'], 'client')} on {len(fleet['classes'])} device classes"
    beside = f" Real devices did {count(served, 'round')} more." if served else ""
    why = f"{who}, {count(fleet['invited'], 'invitation')} in {count(fleet['rounds'], 'round')} (simulated).{left}"
    return Answer(question, words, f"{why}{beside}", NEUTRAL if fleet["contributed"] else BAD)


def privacy(report: dict[str, Any]) -> Answer:
    """Say what is guaranteed to a client, and against whom."""
    question, examples = "At which privacy?", report.get("examples")
    if nothing_yet(report):
        return Answer(question, capitals(NOT_YET), f"{capitals(would_cost(report))}.")
    epsilon = number(report["eps_guaranteed"])
    if not math.isfinite(epsilon):
        if examples and math.isfinite(number(examples["eps_guaranteed"])):
            worth = number(examples["eps_guaranteed"])
            why = f"Each interaction has epsilon {short(worth)}; a person with many interactions has no guarantee."
            return Answer(question, "Single interactions only", why)
        return Answer(question, "No guarantee", "Uploads may reveal anything about a person.", BAD)
    words = f"epsilon {short(epsilon)} per person"
    if epsilon > MEANINGLESS:
        return Answer(question, words, "This epsilon is too large to protect anybody.", BAD)
    whole = f", {TOGETHER}" if report.get("served") else ""
    told = "A weak guarantee" if label(epsilon) else "Guaranteed"
    return Answer(question, words, f"{told} at delta {report['delta']:g}{whole}, against {report['adversary']}.")


def cost(fleet: dict[str, Any], served: int = 0) -> Answer:
    """Say what a typical round costs a device, and which class holds up the others; of `served` ones nobody knows."""
    question = "At what cost?"
    spent = [f"{short(value)} {unit}" for value, unit in typical(fleet)]
    if not spent and served:
        return Answer(question, "Not simulated", "Only the devices know what served rounds cost.")
    if not spent:
        return Answer(question, "No cost", "No device started a round.")
    tenth = (
        ""
        if (slow := slowest(fleet)) is None
        else f" Slowest tenth: {slow[1]['label']}, {short(slow[1]['seconds']['p90'])} s or more."
    )
    first = f", including first downloads ({short(once(fleet))} MB, once)" if once(fleet) else ""
    took = f"{count(fleet['rounds'], 'round')} took {virtual(fleet['virtual_hours'])}"
    why = f"Simulated cost of one round for a typical device{first}.{tenth} {took}."
    return Answer(question, " · ".join(spent), why)


def capitals(words: str) -> str:
    """Return words as a sentence begins."""
    return f"{words[:1].upper()}{words[1:]}"


def number(value: float | str | None) -> float:
    """Return an epsilon of a summary as a number: "inf" is infinity, and so is what nobody knows."""
    return math.inf if value is None else float(value)


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
