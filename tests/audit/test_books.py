"""An audit reads a run's books: who uploaded was charged, and what is printed is what the worst client spent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgefr.simulation.participation import Participation
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.attack_run import audit_run
from edgefr.studies.audits.finding import Effort
from edgefr.studies.audits.ledger_check import check_ledger
from tests.audit.test_attacks import LOUD, simulated


def test_books_of_a_run_are_in_order(tmp_path: Path) -> None:
    found = check_ledger(simulated(tmp_path / "run", *LOUD))
    assert [one.ok for one in found] == [True, True, True]


def test_a_second_participation_that_nobody_counts_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Participation._charge

    def charge(self: Participation, clients: np.ndarray) -> None:
        if self.number == 1:
            right(self, clients)

    monkeypatch.setattr(Participation, "_charge", charge)
    run = simulated(tmp_path / "run", *LOUD)
    report = audit_run(run, ["sign-split"], Effort(users=2))
    assert report["verdict"].startswith("VIOLATED: counted of run: client")
    assert check_ledger(run)[0].figure == 2.0


def test_an_epsilon_that_is_printed_too_small_is_found(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", *LOUD)
    summary = json.loads((run.path / "summary.json").read_text())
    summary["privacy"]["eps_guaranteed"] /= 2.0
    (run.path / "summary.json").write_text(json.dumps(summary))
    assert [one.ok for one in check_ledger(Run.open(run.path))] == [True, True, False]
