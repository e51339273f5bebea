"""A weak audit adds to a strong one and takes nothing away; the bound of a run answers for all that was looked at.

An audit reads a run's books too: who uploaded was charged, and what is printed is what the worst client spent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefr.report.audit import FILE, read_attacks, read_bound
from edgefr.simulation.participation import Participation
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.attack_run import audit_run, check_ledger
from edgefr.studies.audits.finding import Effort, Finding, bound, strongest, verdict
from privacy.audits import epsilon_lower_bound
from tests.audit.test_attacks import LOUD, simulated

DELTA = 1e-5
STRONG = {"true_positives": 500, "positives": 1000, "false_positives": 5, "negatives": 1000}
WEAK = {"true_positives": 30, "positives": 100, "false_positives": 5, "negatives": 100}


def row(attack: str, counts: dict[str, int], claimed: float = 4.0, **rest: Any) -> dict[str, Any]:
    lower = epsilon_lower_bound(*counts.values(), DELTA)
    return Finding(
        attack, "client", eps_lb95=lower, claimed=claimed, of=2000, counts=counts, bounded="rates", **rest
    ).row()


def test_a_weak_audit_takes_nothing_away() -> None:
    first = strongest([], [row("game", STRONG)], DELTA)
    then = strongest(first, [row("game", WEAK, seed=3), row("canaries", WEAK)], DELTA)
    assert [(one["attack"], one["counts"], one["seed"], one["looks"]) for one in then] == [
        ("game", STRONG, 0, 2),
        ("canaries", WEAK, 0, 1),
    ]
    assert then[0]["eps_lb95"] == first[0]["eps_lb95"]
    assert strongest(then, [row("game", STRONG)], DELTA)[0]["looks"] == 2, "the same draws again are no new look"


def test_looking_often_costs_confidence() -> None:
    """The largest of three bounds is one at 1 - .05 / 3, and a bound that was forgotten counts too."""
    once = strongest([], [row("game", STRONG)], DELTA)
    assert bound(once) == once[0]["eps_lb95"]
    thrice = strongest(once, [row("game", WEAK, seed=1), row("canaries", WEAK)], DELTA)
    assert bound(thrice) == epsilon_lower_bound(*STRONG.values(), DELTA, 1.0 - 0.05 / 3.0)
    assert bound([]) is None
    assert bound(strongest([], [Finding("sign-split", "item of a client", auc=0.5).row()], DELTA)) is None


def test_the_verdict_says_the_worst_first() -> None:
    fine = {"check": "noise", "way": "sum", "ok": True, "worst": "item"}
    kept = strongest([], [row("game", STRONG, claimed=2.0)], DELTA)
    report = {"checks": [fine], "attacks": [], "promised": True, "eps_lb95": 1.234}
    assert verdict(report) == "no fault found by 1 checks; epsilon is at least 1.23"
    assert verdict({**report, "promised": False}).startswith("this run's updates have no guarantee")
    assert verdict({**report, "attacks": kept}).startswith("VIOLATED: leakage exceeds the guarantee: game 3.7 > 2")
    broken = {"check": "clip", "way": "bytes", "ok": False, "worst": "tables alone"}
    assert verdict({**report, "attacks": kept, "checks": [fine, broken]}) == "VIOLATED: clip of bytes: tables alone"


@pytest.mark.slow
def test_of_a_run_the_strongest_audit_stays(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", *LOUD)
    strong = audit_run(run, ["game"], Effort(trials=1000))
    weak = audit_run(run, ["game"], Effort(trials=100, seed=5))
    again = audit_run(run, ["sign-split"], Effort(users=3))
    assert json.loads((run.path / FILE).read_text()) == again
    (game,) = (one for one in again["attacks"] if one["attack"] == "game")
    assert (game["of"], game["seed"], game["looks"]) == (1000, 0, 2)
    assert strong["eps_lb95"] >= weak["eps_lb95"] == again["eps_lb95"] == read_bound(run.path)
    assert {one["check"] for one in again["checks"]} >= {"noise", "rounds", "tensors", "clip", "diverged"}


@pytest.mark.parametrize("content", ["", "[]", '{"attacks": 3}', '{"attacks": [{"attack": "game"}]}'])
def test_what_is_damaged_is_not_kept(tmp_path: Path, content: str) -> None:
    assert read_attacks(tmp_path) == []
    (tmp_path / FILE).write_text(content)
    assert read_attacks(tmp_path) == []


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
