"""A page of several runs beside each other is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefr.report.web.facts import Facts
from edgefr.report.web.side_by_side import runs_page
from edgefr.simulation.runs.privacy_spent import told
from edgefr.simulation.runs.run import Run
from privacy.files import write_atomic

FILE = "report.html"
MOST_RUNS = 24
"""Runs that one page can show beside each other."""


def facts_of(path: Path) -> Facts:
    """Read the facts of a finished run, its privacy as all rounds left it, served ones among them.

    Raises `InputError` for a folder that is none.
    """
    return Facts(path, told(Run.open(path)))


def write_runs(paths: Sequence[Path], out: Path) -> Path:
    """Write one page of several finished runs. Raises `InputError` for a folder that is none."""
    return write_atomic(out, runs_page([facts_of(path) for path in paths]))
