"""This section shows what is left in the target of what was learned in the source."""

from __future__ import annotations

from edgefr.report.tables import transfer_table
from edgefr.report.verdict import ranking_of
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section


def section(facts: Facts) -> Section | None:
    """Return the section; None for a run in one domain."""
    found = facts.summary.get("transfer")
    if not found:
        return None
    sheet = transfer_table(found, ranking_of(facts.summary))
    return Section("transfer", "From one domain to the other", {"sheet": sheet})
