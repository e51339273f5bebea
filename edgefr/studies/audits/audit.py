"""`audit` checks and attacks a finished run, and keeps the strongest findings in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config.arguments import checked
from edgefr.config.display import COLUMNS, Brief
from edgefr.config.progress import watched
from edgefr.config.sheet import Sheet
from edgefr.simulation.runs.run import Run
from privacy.progress import Progress

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False)
class Audit(Brief):
    """An audit says what attacks on a run found. `report`: the content of `path`, its audit.json."""

    path: Path
    report: dict[str, Any]

    @property
    def attacks(self) -> DataFrame:
        """Return a row per attack."""
        import pandas as pd

        return pd.DataFrame(self.report["attacks"])

    @property
    def eps_lb95(self) -> float | None:
        """Return what the run leaks at least, with 95 % confidence; None where no attack bounds it."""
        value: float | None = self.report["eps_lb95"]
        return value

    @property
    def verdict(self) -> str:
        """Return what it comes to in one line, the worst first."""
        return str(self.report["verdict"])

    @property
    def checks(self) -> DataFrame:
        """Return a row per check."""
        import pandas as pd

        return pd.DataFrame(self.report["checks"])

    @property
    def checks_sheet(self) -> Sheet:
        """Return the table of the checks."""
        from edgefr.report.audit import checks_sheet

        return checks_sheet(self.report)

    @property
    def sheet(self) -> Sheet:
        """Return the table of the attacks."""
        from edgefr.report.audit import audit_sheet

        return audit_sheet(self.report)

    def brief(self) -> list[RenderableType]:
        """Return the table as wide as it fits, and the file."""
        return [self.verdict, self.sheet.first(COLUMNS), f"wrote {self.path}"]


@watched()
@checked
def audit(
    run: Run | str | Path,
    attacks: Sequence[str] = (),
    *,
    users: int = 50,
    trials: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Check and attack what leaves the devices of a run, and keep the strongest findings in `audit.json` in its folder.

    `attacks`: some of sign-split, membership, gradient-matching, game, canaries, game-rows, game-bytes, game-steps
    (none: all); `users` are attacked, and games are drawn `trials` times, keyed by `seed`. The run's page, where there
    is one, is written again. Raises `InputError` for
    names that are no attacks, impossible numbers, and a run that is not whole.

    Example: ``edgefr.audit("runs/demo", ["game"]).eps_lb95``
    """
    from edgefr.report.audit import FILE
    from edgefr.simulation.summary.pages import FILE as PAGE
    from edgefr.studies.audits.attack_run import audit_run
    from edgefr.studies.audits.finding import Effort
    from edgefr.studies.pages import write_report

    found = Run.of(run)
    report = audit_run(found, attacks, Effort(users, trials, seed), progress)
    if (found.path / PAGE).is_file():
        write_report([found.path])
    return Audit(found.path / FILE, report)
