"""A finished run is checked and attacked, and `audit.json` is written into its folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgefr.engine.device import one_thread
from edgefr.report.audit import FILE, SCHEMA, read_attacks
from edgefr.simulation.bundle_checks import check_federated
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.attacks import ATTACKS
from edgefr.studies.audits.checks import FALSE_ALARM, Outcome, check
from edgefr.studies.audits.finding import Effort, bound, strongest, verdict
from edgefr.studies.audits.target import AttackTarget
from privacy.errors import InputError, unknown
from privacy.files import write_json
from privacy.progress import Progress
from privacy.trust import TRUSTS

FEWEST, MOST = 100, 1_000_000
ASKS = "was every upload of the run charged, and is the worst client's epsilon what is printed?"


def audit_run(
    run: Run, attacks: Sequence[str] = (), effort: Effort | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Check a finished run, attack it by `attacks` (names of the table; none: all), and write `audit.json`.

    Checks are always made. Of each attack the strongest finding of all audits of the run is kept. `eps_lb95`: with 95 %
    confidence the run's mechanism leaks at least so much, however often one looked; None where no game was ever played.
    Raises `InputError` for names that are no attacks, impossible numbers, and a run that is not whole.

    Example: ``edgefr.studies.audits.attack_run.audit_run(edgefr.Run.open("runs/demo"), ["game"])["verdict"]``
    """
    check_federated(run.experiment, "update that leaves a device, to attack")
    if run.experiment.protocol.draws_apart:
        raise InputError(
            "attacks play rounds whose negatives are drawn from all that is recommended, and this run's were not: "
            "audit one of protocol.by=ratio"
        )
    effort, progress = effort or Effort(), progress or (lambda stage, done, total, note: None)
    for name in attacks:
        if name not in ATTACKS:
            raise unknown("attack", name, ATTACKS)
    if effort.users < 1:
        raise InputError(f"--users takes a whole number of at least 1, got {effort.users}")
    if not FEWEST <= effort.trials <= MOST:
        raise InputError(f"--trials takes a whole number from {FEWEST} to {MOST}, got {effort.trials}")
    if not 0 <= effort.seed < 2**31:
        raise InputError(f"--seed takes a whole number from 0 to {2**31 - 1}, got {effort.seed}")
    with one_thread():
        target = AttackTarget.open(run)
        progress("checks", 0, 1, "")
        checks = [*check(target.channels(effort.seed), effort.seed), *check_ledger(run)]
        progress("checks", 1, 1, "")
        names = [name for name in ATTACKS if not attacks or name in attacks]
        found = [ATTACKS[name](target, effort, progress).row() for name in names]
    delta = target.experiment.privacy.delta
    kept = strongest(read_attacks(run.path), found, delta)
    order = [name for name in ATTACKS if name in {row["attack"] for row in kept}]
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "eps_lb95": bound(kept),
        "promised": target.promises,
        "trust": target.experiment.privacy.trust,
        "adjacency": target.plan.adjacency,
        "delta": delta,
        "rounds": target.rounds,
        "attacker": TRUSTS[target.experiment.privacy.trust].attacker,
        "false_alarm": FALSE_ALARM,
        "checks": [outcome.row() for outcome in checks],
        "attacks": sorted(kept, key=lambda row: order.index(row["attack"])),
    }
    report = {"verdict": verdict(report), **report}
    write_json(run.path / FILE, report)
    return report


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
