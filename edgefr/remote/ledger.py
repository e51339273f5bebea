"""Real devices that go on with a run go on with its ledger: that of the run so far, and what they release here.

As in a simulation, whoever would exceed the budget sits out, and a device is charged when it takes up work, whether its
release arrives or not. The file of the ledger is written ahead: while a round is open it counts the whole cohort, so
that a server killed in the middle has forgotten nothing. Owns: that order. Does not own: what a release costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgefr.engine.work import Clients
from edgefr.participation import ledger_for
from edgefr.run import Run
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.plan import Plan
from privacy.report import ledger_report


@dataclass
class ServingLedger:
    """This is the `ledger` of the clients of `run`, kept in `path`; `event`: what each of their releases is."""

    run: Run
    ledger: Ledger
    event: Event
    path: Path
    _started: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, run: Run, plan: Plan, clients: int, path: Path) -> ServingLedger | None:
        """Return None where a release guarantees nothing.

        Raises `InputError` for a run with rounds that lacks its ledger.
        """
        empty = ledger_for(run.experiment.privacy, plan, clients)
        if empty is None:
            return None
        found = run.read_ledger({"delta": empty.delta, "adjacency": empty.adjacency})
        if found is None and run.experiment.rounds:
            raise InputError(f"{run.path} has no ledger.parquet of its {run.experiment.rounds} rounds; put it back")
        if found is not None and len(found) != clients:
            raise InputError(f"the ledger of {run.path} has {len(found)} clients, the run {clients}; run it again")
        return cls(run, found or empty, plan.event, path)

    def admit(self, cohort: Clients) -> Clients:
        """Return those of a round's cohort who may release once more; on the disk all of them already did."""
        admitted = cohort[self.ledger.admit(cohort, self.event)]
        ahead = deepcopy(self.ledger)
        ahead.spend(admitted, self.event)
        self.run.write_ledger(ahead, self.path)
        return admitted

    def charge(self, started: Iterable[int]) -> None:
        """The round is over: charge those who took up its work."""
        clients = sorted(started)
        self._started |= set(clients)
        self.ledger.spend(np.array(clients, np.int64), self.event)
        self.run.write_ledger(self.ledger, self.path)

    def close(self) -> None:
        """End serving. Where nobody took up any work, the file goes, and its folder if it holds nothing else."""
        if not self._started:
            self.path.unlink(missing_ok=True)
            if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
                self.path.parent.rmdir()

    def report(self) -> dict[str, Any]:
        """Return, for the summary, what the worst client has spent, and who sat out."""
        return ledger_report(self.ledger)
