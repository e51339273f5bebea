"""This section shows all test metrics of every stage and reference."""

from __future__ import annotations

from edgefr.report.tables import metric_table
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section


def section(facts: Facts) -> Section | None:
    """Return the section; None for a run over blocks, which has a table of its own."""
    summary = facts.summary
    if "continual" in summary:
        return None
    learned = summary.get("learning") or {split: {} for split in summary["stages"]}  # a run of an earlier version
    sheets = [metric_table({**summary, "learning": learned}, split) for split in summary["stages"]]
    return Section("measures", "All measurements", {"sheets": sheets})
