"""A run's own books are checked: was everybody charged for what they uploaded, and is the worst what is printed?"""

from __future__ import annotations

import math

import numpy as np

from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.checks import Outcome

ASKS = "was every upload of the run charged, and is the worst client's epsilon what is printed?"


def check_ledger(run: Run) -> list[Outcome]:
    """Compare a run's ledger with its log of events and with its summary; nothing where releases are not counted."""
    privacy = run.summary.get("privacy", {})
    ledger = run.read_ledger(privacy)
    if ledger is None:
        return []
    events = run.events
    uploads = events[events["kind"] == "uploaded"]
    made = np.bincount(uploads["client"].to_numpy(np.int64), minlength=len(ledger))
    short = made[: len(ledger)] - ledger.releases()
    twice = int(uploads.groupby(["round", "client"]).size().max()) if len(uploads) else 1
    printed, spent = float(privacy.get("eps_guaranteed", math.inf)), ledger.worst()[0].epsilon
    return [
        _outcome(f"client {int(short.argmax())}", float(max(0, short.max())), "uploads not charged"),
        _outcome("the busiest client of a round", float(twice), "uploads", least=1.0),
        _outcome(
            "the worst client", spent / printed if printed else math.inf, "of the printed epsilon", least=1.0 + 1e-9
        ),
    ]


def _outcome(worst: str, figure: float, unit: str, least: float = 0.0) -> Outcome:
    ok = figure <= least
    return Outcome("counted", "run", ASKS, ok, worst, figure, unit, float(ok), 1)
