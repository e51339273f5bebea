"""The work of a trade-off: searches, the runs of what they chose, and attacks on one run of every point.

DIR/tuning/, DIR/tuning-not-private/    DIR/prices.json    DIR/runs/<point>/trial-<n>-<digest>/seed-<s>/audit.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edgefr.report.audit import FILE
from edgefr.studies.audits.audit import audit
from edgefr.studies.jobs import Failed
from edgefr.studies.jobs_on_ray import run_jobs
from edgefr.studies.sweeps.results import SweepRun
from edgefr.studies.sweeps.run import Sweep
from edgefr.studies.sweeps.search import Trial
from edgefr.studies.tradeoffs.plan import TradeoffPlan
from edgefr.studies.tuning.private import Price, price
from edgefr.studies.tuning.report import report as tuning_report
from edgefr.studies.tuning.space import fields
from privacy.errors import InputError
from privacy.files import write_json

ATTACKS = ("sign-split", "membership", "gradient-matching", "game", "game-steps")
"""Which items were a person's, whether an interaction was learned from, and whether somebody took part at all."""
PRICES = "prices.json"


def attack(run: Path, common: None) -> None:
    """Audit a run, and leave what was found in its folder."""
    audit(run, ATTACKS)


@dataclass
class TradeoffSweep(Sweep):
    """These are the runs of a trade-off; `unattacked`: why a run was not attacked, by its folder."""

    plan: TradeoffPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unattacked: dict[str, str] = {}

    def _search(self) -> dict[str, int]:
        """Search at every point, run what was chosen with every seed, and attack one run of each."""
        best = self._tune()
        points = [point for point in self.plan.points if point.name in best]
        tuned = [(point, best[point.name]) for point in points]
        made = self._make([self._job(point, seed, trial) for seed in self.plan.seeds for point, trial in tuned])
        self._make([self._job(point, seed) for seed in self.plan.seeds for point in self.plan.as_given])
        self._attack(made[: len(tuned)])
        return {point.name: trial.number for point, trial in tuned}

    def _tune(self) -> Mapping[str, Trial]:
        """Return what was chosen at every point, and keep what each search would have cost."""
        best, prices = dict[str, Trial](), dict[str, Price | None]()
        for tuning in self.plan.tunings(self.folder, self.options.data_dir, self.where, self._doing):
            found = list(tuning.run())
            tuning_report(tuning, found)
            for one in found:
                name = one.space.name
                prices[name] = price(tuning.base, one.space, one.records, tuning.rules.seeds, one.experiment)
                if one.best is None:
                    raise InputError(f"{name}: no trial came to a number; look at the settings that are held")
                best[name] = Trial(one.best.trial.number, fields(one.best.trial.values))
        write_json(self.folder / PRICES, {name: paid and asdict(paid) for name, paid in prices.items()})
        self.standing.doing = ""
        return best

    def _doing(self, stage: str, done: int, total: int, note: str) -> None:
        self.standing.doing = f"tuning {stage}, trial {done} of {total}{f': {note}' if note else ''}"
        self.watch(self.standing)

    def _attack(self, runs: list[SweepRun]) -> None:
        places = [self.folder / run.path for run in runs if run.summary is not None]
        left = [place for place in places if not (place / FILE).is_file()]
        for number, (place, found) in enumerate(run_jobs(attack, left, None, self.where, self.folder), 1):
            self.standing.doing = f"attacks, run {number} of {len(left)}"
            self.watch(self.standing)
            if isinstance(found, Failed):
                self.unattacked[str(place.relative_to(self.folder))] = found.why
