"""`audit`: the attacks on a finished run, and `audit.json` in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefr.audits.attacks import ATTACKS, Effort, Finding
from edgefr.audits.record import FILE, SCHEMA
from edgefr.audits.target import AttackTarget
from edgefr.engine.federation import one_thread
from edgefr.prepare import Progress
from edgefr.run import Run
from privacy.errors import InputError, unknown
from privacy.files import write_json
from privacy.trust import TRUSTS

FEWEST, MOST = 100, 1_000_000


def audit(
    run: Run, attacks: Sequence[str] = (), effort: Effort | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Attack a finished run by `attacks` (names of the table; none: all) and write what was found to `audit.json`.

    `eps_lb95`: with 95 % confidence the run's mechanism leaks at least so much (see `bound`); None where neither game
    nor canaries were asked for. Raises `InputError` for names that are no attacks, impossible numbers, and a run that
    is not whole.

    Example: ``edgefr.audits.audit.audit(edgefr.Run.open("runs/demo"), ["game"])["eps_lb95"]``
    """
    effort = Effort() if effort is None else effort
    for name in attacks:
        if name not in ATTACKS:
            raise unknown("attack", name, ATTACKS)
    if effort.users < 1:
        raise InputError(f"--users takes a whole number of at least 1, got {effort.users}")
    if not FEWEST <= effort.trials <= MOST:
        raise InputError(f"--trials takes a whole number from {FEWEST} to {MOST}, got {effort.trials}")
    with one_thread():
        target = AttackTarget.open(run)
        names = [name for name in ATTACKS if not attacks or name in attacks]
        found = [ATTACKS[name](target, effort, progress or _quiet) for name in names]
    report = {
        "schema": SCHEMA,
        "eps_lb95": bound(found),
        "trust": target.experiment.privacy.trust,
        "adjacency": target.plan.adjacency,
        "delta": target.experiment.privacy.delta,
        "rounds": target.rounds,
        "attacker": TRUSTS[target.experiment.privacy.trust].attacker,
        "attacks": [finding.row() for finding in found],
    }
    write_json(run.path / FILE, report)
    return report


def bound(found: Sequence[Finding]) -> float | None:
    """The bound of a run: of the attack that saw most releases of a client, the first of equal ones; None without any.

    What was found does not decide it, so it is as sure as each bound is.
    """
    bounds = [f for f in found if f.eps_lb95 is not None]
    return max(bounds, key=lambda f: f.releases).eps_lb95 if bounds else None


def _quiet(stage: str, done: int, total: int, note: str) -> None:
    pass
