"""Sessions: repeats and new items apart, since a mean over both hides which of them was found."""

from __future__ import annotations

from edgefr.report.sessions import group_table
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section


def section(facts: Facts) -> Section | None:
    """Return the section; None for a run that is not over sessions."""
    if "sessions" not in facts.summary:
        return None
    about = facts.summary["sessions"]["statistics"]
    told = [(name.replace("_", " "), f"{value:,}") for name, value in about.items()]
    return Section("sessions", "Repeats and new items", {"sheet": group_table(facts.summary), "facts": told})
