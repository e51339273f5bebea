"""Bundles: what each device class would run of this model."""

from __future__ import annotations

from edgefr.report.tables import bundle_table, warnings
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section


def section(facts: Facts) -> Section | None:
    """Return the section; None where no bundles were asked for."""
    summary = facts.summary
    if not summary["bundles"] and not summary.get("no_bundles"):
        return None
    fit = sum(row["fits"] for row in summary["bundles"])
    values = {
        "sheet": bundle_table(summary["bundles"]) if summary["bundles"] else None,
        "fit": fit,
        "of": len(summary["bundles"]),
        "none": summary.get("no_bundles"),
        "warnings": [line for line in warnings(summary) if "bundle" in line],
    }
    return Section("bundles", "What is shipped?", values)
