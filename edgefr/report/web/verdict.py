"""This section is the verdict: each learned model beside all that needs no learning, with intervals over users."""

from __future__ import annotations

from markupsafe import Markup

from edgefr.report.verdict import AFTER, FEW, Verdict, every_verdict
from edgefr.report.web.answers import capitals
from edgefr.report.web.chart import Axis
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import ROOMY, Drawn, ReportTable, Section, SectionPart, folded, text, yes_no
from privacy.sentence import clip_warning

WHEN = (
    "Learning helped if the final model beats the same model before any round, chance and every other "
    "baseline: the whole interval of a paired bootstrap over users lies right of zero. Intervals cover users, not "
    "other seeds or other data."
)

CENTRAL = (
    "Central references train on everybody's data in one place, which no federation may do. They show how "
    "much more could be learned; the verdict does not depend on them."
)


def section(facts: Facts) -> Section | None:
    """Return the section, if the run compared its model with anything."""
    found = every_verdict(facts.summary)
    if not found:
        return None
    several = len({one.split for one in found}) > 1
    first, *others = [beside(one, several) for one in found]
    warned = clip_warning((facts.summary.get("privacy") or {}).get("clip") or {})
    parts = [text(capitals(warned) + ".", "warning") if warned else None, *first, text(WHEN, "note")]
    if others:
        folds = [part for one in others for part in one]
        parts.append(folded(f"Verdicts on other stages or splits ({len(others)})", folds))
    return Section.of("verdict", "Does learning help?", parts)


def beside(one: Verdict, several: bool) -> list[SectionPart | None]:
    """Return one model beside what needs no learning: differences on one axis, zero among them."""
    where = f", on {one.split}" if several else ""
    says = Markup("<strong>Model {}{}: {}.</strong> {}: {:.4f}")
    axis = Axis.over([end for row in one.beside for end in (row.low, row.high) if end is not None], most=4)
    rows = [
        {
            "compared with": row.said,
            "reaches": f"{row.value:.4f}",
            "difference, drawn": Drawn(
                axis,
                axis.strip(row.difference, row.low, row.high, f"against {row.said}: {row}"),
                "good" if row.beaten else "bad",
            ),
            f"gain [{100 * one.level:.0f} % interval]": f"{row}",
            "better?": yes_no(row.beaten),
        }
        for row in one.beside
        if row.words != FEW
    ]
    table = ReportTable(f"{one.stage} compared with baselines", rows, ("compared with", "better?"), look=ROOMY)
    notes = [f"{capitals(said)}." for said in (one.disagreement, one.ceiling) if said]
    notes += [CENTRAL] if one.ceilings else []
    says_so = text(
        says.format(AFTER.get(one.stage, f"after {one.stage}"), where, one.words, one.measure, one.value), "says"
    )
    return [says_so, table.part, *(text(said, "note") for said in notes)]
