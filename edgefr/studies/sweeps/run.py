"""The runs of a sweep lie in a folder each; a search asks for them batch by batch.

DIR/sweep.json    DIR/search.journal    DIR/runs/<point>/seed-<s>/    DIR/runs/<point>/trial-<n>-<digest>/seed-<s>/
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.simulation.runs.keeper import asked
from edgefr.simulation.runs.layout import CHECKPOINT
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import resume, simulate
from edgefr.studies.campaign import finished
from edgefr.studies.jobs import HERE, Failed, Where
from edgefr.studies.jobs_on_ray import run_jobs
from edgefr.studies.sweeps.grid import Point
from edgefr.studies.sweeps.plan import RECORD, SweepPlan
from edgefr.studies.sweeps.results import FinishedSweep, SweepRun, in_full, validation
from edgefr.studies.sweeps.search import EndedTrial, Study, Trial, available, open_journal
from privacy.errors import InputError
from privacy.noise_key import NoiseKey


@dataclass(frozen=True)
class SweepJob:
    """This is one run to be made into `out`; `trial`: the search's choice that it is made for."""

    point: Point
    seed: int
    trial: Trial | None
    experiment: Experiment
    fleet: FleetFile
    out: Path


@dataclass(frozen=True)
class RunOptions:
    """All runs of a sweep have these in common. `checkpoint_every`: rounds (None: no checkpoint is written).

    `noise_key`: keys the simulated noise of all runs, of each by its folder (None: each run has a key of its own).
    """

    data_dir: Path | None = None
    checkpoint_every: int | None = None
    noise_key: NoiseKey | None = None


def make(job: SweepJob, options: RunOptions) -> float:
    """Make a run, from its checkpoint if it has a fitting one, and return its seconds; anything else is removed."""
    began = time.monotonic()
    common: dict[str, Any] = {"data_dir": options.data_dir, "checkpoint_every": options.checkpoint_every}
    common |= {"bundles": False, "page": False}
    if any((job.out / CHECKPOINT).glob("round-*")):
        try:
            resume(job.out, warn=lambda line: None, **common)
            return time.monotonic() - began
        except InputError:  # of other data, or damaged: the beginning says what is wrong with the run itself
            pass
    shutil.rmtree(job.out, ignore_errors=True)
    key = None
    if options.noise_key is not None and job.experiment.draws_noise:
        key = options.noise_key.child("/".join((*job.out.parts[-3:], asked(job.experiment, job.fleet))))
    simulate(job.experiment, job.fleet, out=job.out, noise_key=key, **common)
    return time.monotonic() - began


@dataclass
class Standing:
    """This says how far a sweep is: runs that have ended, and the seconds of those that this call made.

    `doing`: what is done beside runs, in words.
    """

    total: int
    workers: int
    entries: list[SweepRun] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    folder: Path | None = None
    doing: str = ""

    @property
    def failed(self) -> int:
        """Count the runs that failed."""
        return sum(entry.summary is None for entry in self.entries)

    @property
    def seconds_left(self) -> float | None:
        """Return what the remaining runs will take if they are like those that have ended; None before the first."""
        known = self.seconds or [e.summary["engine"]["wall_seconds"] for e in self.entries if e.summary is not None]
        if not known:
            return None
        return (self.total - len(self.entries)) * sum(known) / len(known) / self.workers


Watch = Callable[[Standing], None]


@dataclass
class Sweep:
    """These are the runs of a plan in `folder`; `watch` is told of every run that ends."""

    plan: SweepPlan
    folder: Path
    options: RunOptions = RunOptions()
    where: Where = HERE
    watch: Watch = lambda standing: None
    standing: Standing = field(init=False)

    def __post_init__(self) -> None:
        self.standing = Standing(self.plan.runs, self.where.workers, folder=self.folder)

    def run(self) -> FinishedSweep:
        """Make everything that is not finished yet; runs come in the order of grid, trials and seeds.

        Stop it at any time: finished runs stay, and the same plan goes on from there. Raises `InputError` where
        another process is at work in the folder.
        """
        best = dict[str, int]()
        with RECORD.alone(self.folder):
            if self.plan.search is None:
                self._make([self._job(point, seed) for seed in self.plan.seeds for point in self.plan.points])
            else:
                best = self._search()
        order = {point.name: place for place, point in enumerate(self.plan.points)}
        runs = sorted(self.standing.entries, key=lambda e: (order[e.point.name], e.number, e.seed))
        count = [run for run in runs if best.get(run.point.name, -1) == run.number]
        return FinishedSweep(self.folder, self.plan.record(), tuple(runs), tuple(count))

    def _job(self, point: Point, seed: int, trial: Trial | None = None) -> SweepJob:
        experiment = self.plan.experiment(point, seed, trial.values if trial is not None else None)
        place = self.folder / "runs" / point.name
        if trial is not None:
            place /= trial.folder
        return SweepJob(point, seed, trial, experiment, self.plan.fleets.of(experiment), place / f"seed-{seed}")

    def _make(self, jobs: Sequence[SweepJob]) -> list[SweepRun]:
        """Return what jobs came to, in their order; those that have a summary are not made again."""
        found = {job.out: self._ended(job, None) for job in jobs if finished(job.out)}
        self.watch(self.standing)
        left = [job for job in jobs if job.out not in found]
        for job, made in run_jobs(make, left, self.options, self.where, self.folder):
            if isinstance(made, float):
                self.standing.seconds.append(made)
            found[job.out] = self._ended(job, made.why if isinstance(made, Failed) else None)
            self.watch(self.standing)
        return [found[job.out] for job in jobs]

    def _ended(self, job: SweepJob, problem: str | None) -> SweepRun:
        summary = None
        if problem is None:
            try:
                summary = in_full(Run(job.out).summary)
            except InputError as error:
                problem = str(error)
        run = SweepRun(job.point, job.seed, job.trial, job.out.relative_to(self.folder), summary, problem)
        self.standing.entries.append(run)
        return run

    def _search(self) -> dict[str, int]:
        """Make batches of all points together, then the remaining seeds of what each search chose, by point."""
        search = self.plan.search
        assert search is not None
        available()
        journal = open_journal(self.folder)
        studies = [
            (point, Study(journal, point.name, search.ranges, search.trials, self.plan.seeds[0], place))
            for place, point in enumerate(self.plan.points)
        ]
        first, *others = self.plan.seeds
        ended = [(self._job(point, first, one.trial), one) for point, study in studies for one in study.ended]
        self._make([job for job, one in ended if math.isfinite(one.value)])
        for job, one in ended:
            if not math.isfinite(one.value):
                self._ended(job, "it failed in an earlier call, and a search does not ask again")
        while batch := [(point, study, trial) for point, study in studies for trial in study.ask()]:
            runs = self._make([self._job(point, first, trial) for point, _, trial in batch])
            for point, study in studies:
                ended_now, metric = list[EndedTrial](), self.plan.objectives[point.name]
                for (of, _, trial), run in zip(batch, runs, strict=True):
                    if of is point:
                        value = math.nan if run.summary is None else validation(run.summary, metric)
                        ended_now.append(EndedTrial(trial, value))
                study.tell(ended_now)
        best = [(point, study.best.trial) for point, study in studies if study.best is not None]
        self._make([self._job(point, seed, trial) for seed in others for point, trial in best])
        return {point.name: trial.number for point, trial in best}
