"""A trade-off is made of searches, of the runs of what they chose, and of attacks on one run of every point.

DIR/tuning/, DIR/tuning-not-private/    DIR/prices.json    DIR/runs/<point>/trial-<n>-<digest>/seed-<s>/audit.json
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from edgefr.report.audit import FILE
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.attack_run import audit_run
from edgefr.studies.jobs import Failed
from edgefr.studies.jobs_on_ray import run_jobs
from edgefr.studies.sweeps.results import SweepRun
from edgefr.studies.sweeps.run import Sweep
from edgefr.studies.sweeps.search import Trial
from edgefr.studies.tradeoffs.plan import TradeoffPlan
from edgefr.studies.tuning.private import price
from edgefr.studies.tuning.report import report
from edgefr.studies.tuning.space import fields
from privacy.errors import InputError
from privacy.files import write_json

ATTACKS = ("sign-split", "membership", "gradient-matching", "game", "game-steps")
"""Which items were a person's, whether an interaction was learned from, and whether somebody took part at all."""
PRICES = "prices.json"


def attack(run: Path, common: None) -> None:
    """Audit a run, and leave what was found in its folder."""
    audit_run(Run(run), ATTACKS)


@dataclass
class TradeoffSweep(Sweep):
    """These are the runs of a trade-off; `unattacked`: why runs were not attacked, by their folder."""

    plan: TradeoffPlan
    unattacked: dict[str, str] = field(init=False, default_factory=dict)

    def _search(self) -> dict[str, int]:
        """Search at every point, run what was chosen with every seed, and attack one run of each."""
        chosen = self._tune()
        tuned = [(point, chosen[point.name]) for point in self.plan.points]
        made = self._make([self._job(point, seed, trial) for seed in self.plan.seeds for point, trial in tuned])
        self._make([self._job(point, seed) for seed in self.plan.seeds for point in self.plan.as_given])
        self._attack(made[: len(tuned)])
        return {point.name: trial.number for point, trial in tuned}

    def _tune(self) -> dict[str, Trial]:
        """Return what was chosen at every point, and keep what each search would have cost."""
        chosen, prices = dict[str, Trial](), {}
        for tuning in self.plan.tunings(self.folder, self.options.data_dir, self.where, self._tuning):
            found = list(tuning.run())
            report(tuning, found)
            for one in found:
                paid = price(tuning.base, one.space, one.records, tuning.rules.seeds, one.experiment)
                prices[one.space.name] = paid and {"more": paid.more, "said": str(paid)}
                if one.best is None:
                    raise InputError(
                        f"{one.space.name}: no trial gave a finite value; look at the settings that are held"
                    )
                chosen[one.space.name] = Trial(one.best.trial.number, fields(one.best.trial.values))
        write_json(self.folder / PRICES, prices)
        self._tell("")
        return chosen

    def _tuning(self, stage: str, done: int, total: int, note: str) -> None:
        self._tell(f"tuning {stage}, trial {done} of {total}{f': {note}' if note else ''}")

    def _tell(self, doing: str) -> None:
        self.standing.doing = doing
        self.watch(self.standing)

    def _attack(self, runs: list[SweepRun]) -> None:
        places = [self.folder / run.path for run in runs if run.summary is not None]
        left = [place for place in places if not (place / FILE).is_file()]
        self._tell(f"attacks on {len(left)} runs")
        for number, (place, found) in enumerate(run_jobs(attack, left, None, self.where, self.folder), 1):
            self._tell(f"attacks on {len(left)} runs, {number} done")
            if isinstance(found, Failed):
                self.unattacked[str(place.relative_to(self.folder))] = found.why
