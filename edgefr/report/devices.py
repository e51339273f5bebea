"""This table for the terminal shows the device classes of a fleet."""

from __future__ import annotations

from edgefr.fleet.spec import FleetFile
from edgefr.fleet.table import table
from edgefr.report.layout import Sheet


def device_table(spec: FleetFile) -> Sheet:
    """Show the device classes of a fleet file."""
    rows = table(spec)
    words = ["class", "label", "cores", "networks", "evidence"]
    caption = "evidence: M measured, P measured on a named proxy, D derived by arithmetic, E estimate"
    return Sheet("device classes", rows, words=words, caption=caption)
