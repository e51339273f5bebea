"""All that a run's clients have released so far is told in one place: in its own rounds, and in served ones.

Owns: which ledgers there are, and what a run's privacy report says of all rounds together. Does not own: the report's
words (`privacy.report`, `privacy.report_rows`), served rounds (`edgefr.simulation.runs.lineage`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefr.report.audit import FILE as AUDIT
from edgefr.report.audit import read_bound
from privacy.report import ledger_report, with_served

if TYPE_CHECKING:
    from edgefr.simulation.runs.folder import RunFolder

Report = dict[str, Any]


@dataclass(frozen=True)
class Spent:
    """This is the privacy of a run as it stands: its report of all rounds together, and what each ledger says.

    `ledgers`: of all rounds, and of the simulated and the served ones where any were served; None where none is kept.
    `collected`: served rounds by how their uploads reached the server.
    """

    report: Report
    ledgers: dict[str, Report | None]
    collected: dict[str, int]

    @classmethod
    def of(cls, run: RunFolder, report: Report) -> Spent:
        """Read that of a run, whose simulation ended with this `report`, and what audits have proved since.

        Raises `InputError` for a ledger or a lineage that is damaged, or of another run.
        """
        lineage = run.lineage
        if (run.path / AUDIT).is_file():
            report = {**report, "audited": True, "eps_lb95": read_bound(run.path)}
        found = {"ledger": run.read_ledger(report)}
        if lineage.begun is not None:
            found |= {"simulated": run.simulated_ledger(report), "served": lineage.ledger()}
        seen = {"simulated": 0}
        told = {
            name: None if ledger is None else ledger_report(ledger, seen.get(name, lineage.seen))
            for name, ledger in found.items()
        }
        whole = with_served(report, told["ledger"], len(lineage.rounds), lineage.round) if lineage.rounds else report
        return cls(whole, told, lineage.collected)


def told(run: RunFolder) -> Report:
    """Return a finished run's summary, its privacy as all rounds left it, served ones among them."""
    summary = run.summary
    if not isinstance(summary.get("privacy"), dict) or not summary["privacy"]:  # a central reference has none
        return summary
    return {**summary, "privacy": Spent.of(run, summary["privacy"]).report}
