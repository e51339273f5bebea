"""A sweep's runs: one folder each, finished ones kept, failures noted, several at a time.

DIR/sweep.json    DIR/search.journal    DIR/runs/<point>/seed-<s>/    DIR/runs/<point>/trial-<n>-<digest>/seed-<s>/
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.simulation.runs.keeper import asked
from edgefr.simulation.runs.layout import CHECKPOINT
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import resume, simulate
from edgefr.studies.jobs import HERE, Failed, Where
from edgefr.studies.jobs_on_ray import run_jobs
from edgefr.studies.sweeps.grid import Point, canonical
from edgefr.studies.sweeps.plan import RECORD, Plan
from edgefr.studies.sweeps.results import Entry, validation
from edgefr.studies.sweeps.search import Study, Told, Trial, available, opened
from privacy.errors import InputError
from privacy.machine import hold
from privacy.noise_key import NoiseKey


@dataclass(frozen=True)
class Job:
    """A job is one run: an experiment on a fleet, into `out`. `trial`: the search's choice it is made for."""

    point: Point
    seed: int
    trial: Trial | None
    experiment: Experiment
    fleet: FleetFile
    out: Path


@dataclass(frozen=True)
class Options:
    """All runs of a sweep have these in common. `checkpoint_every`: rounds (None: no checkpoint is written).

    `noise_key`: keys the simulated noise of all runs, of each by its folder (None: each run has a key of its own).
    """

    data_dir: Path | None = None
    checkpoint_every: int | None = None
    noise_key: NoiseKey | None = None


def make(job: Job, options: Options) -> float:
    """Make a run, and return its seconds.

    It goes on from the checkpoint that an interrupted one left in its folder, else from its beginning.

    What cannot be gone on with is removed.
    """
    began = time.monotonic()
    common: dict[str, Any] = {"data_dir": options.data_dir, "checkpoint_every": options.checkpoint_every}
    common |= {"bundles": False, "figures": False}
    if any((job.out / CHECKPOINT).glob("round-*")):
        try:
            resume(job.out, warn=lambda line: None, **common)
            return time.monotonic() - began
        except InputError:  # of other data, or damaged: the beginning says what is wrong with the run itself
            pass
    shutil.rmtree(job.out, ignore_errors=True)
    named = options.noise_key is not None and job.experiment.draws_noise
    key = options.noise_key.child(_named(job)) if named and options.noise_key is not None else None
    simulate(job.experiment, job.fleet, out=job.out, noise_key=key, **common)
    return time.monotonic() - began


def _named(job: Job) -> str:
    """Return what keys a job's noise: its folder in the sweep, and all that was asked of it."""
    return "/".join((*job.out.parts[-3:], asked(job.experiment, job.fleet)))


@dataclass
class Standing:
    """This says how far a sweep is. `entries`: runs that have ended; `seconds`: of each of this call's; `total`: runs.

    `entries`: runs that have ended; `seconds`: what each of this call's took; `total`: runs.
    """

    total: int
    workers: int
    entries: list[Entry] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    folder: Path | None = None

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
    """These are the runs of a plan in `folder`.

    `watch` is told of every run that ends; `best`: what searches chose, by point.
    """

    plan: Plan
    folder: Path
    options: Options = Options()
    where: Where = HERE
    watch: Watch = lambda standing: None
    standing: Standing = field(init=False)
    best: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.standing = Standing(self.plan.runs, self.where.workers, folder=self.folder)

    def run(self) -> list[Entry]:
        """Run everything that is not finished yet, then return all entries in the order of grid, trials and seeds.

        Stop it at any time: finished runs stay, and the same plan goes on from there. Raises `InputError` where
        another process is at work in the folder.
        """
        with alone(self.folder / RECORD):
            if self.plan.ask.search is None:
                self._make([self._job(point, seed) for seed in self.plan.seeds for point in self.plan.points])
            else:
                self._search()
        order = {point.name: place for place, point in enumerate(self.plan.points)}
        return sorted(self.standing.entries, key=lambda e: (order[e.point.name], e.number, e.seed))

    def speaks(self, entry: Entry) -> bool:
        """Say whether a run counts for its point: any, unless a search chose among them."""
        return entry.trial is None or self.best.get(entry.point.name) == entry.trial.number

    def _job(self, point: Point, seed: int, trial: Trial | None = None) -> Job:
        experiment = self.plan.experiment(point, seed, trial.values if trial is not None else None)
        place = self.folder / "runs" / point.name
        if trial is not None:
            text = canonical(trial.values).encode()
            place /= f"trial-{trial.number:03d}-{hashlib.sha256(text).hexdigest()[:8]}"
        return Job(point, seed, trial, experiment, self.plan.fleet(experiment), place / f"seed-{seed}")

    def _make(self, jobs: Sequence[Job]) -> list[Entry]:
        """Return the entries of jobs in their order; those that have a summary are not run again."""
        found: dict[Path, Entry] = {}
        todo = []
        for job in jobs:
            if (job.out / "summary.json").is_file():
                found[job.out] = self._ended(job, None)
            else:
                todo.append(job)
        self.watch(self.standing)
        for job, made in run_jobs(make, todo, self.options, self.where, self.folder):
            if isinstance(made, float):
                self.standing.seconds.append(made)
            found[job.out] = self._ended(job, made.why if isinstance(made, Failed) else None)
            self.watch(self.standing)
        return [found[job.out] for job in jobs]

    def _ended(self, job: Job, problem: str | None) -> Entry:
        summary = None
        if problem is None:
            try:
                summary = Run(job.out).summary
            except InputError as error:
                problem = str(error)
        entry = Entry(job.point, job.seed, job.trial, job.out.relative_to(self.folder), summary, problem)
        self.standing.entries.append(entry)
        return entry

    def _search(self) -> None:
        """Run batches of all points together, then the remaining seeds of what each search chose."""
        studies = self._studies()
        first, *others = self.plan.seeds
        told = [(self._job(point, first, told.trial), told) for point, study in studies for told in study.told]
        self._make([job for job, one in told if math.isfinite(one.value)])
        for job, one in told:
            if not math.isfinite(one.value):
                self._ended(job, "it failed in an earlier call, and a search does not ask again")
        while batch := [(point, study, trial) for point, study in studies for trial in study.ask()]:
            entries = self._make([self._job(point, first, trial) for point, _, trial in batch])
            values = [Told(trial, self._objective(e)) for (_, _, trial), e in zip(batch, entries, strict=True)]
            for point, study in studies:
                study.tell([value for value, (of, _, _) in zip(values, batch, strict=True) if of is point])
        best = [(point, study.best.trial) for point, study in studies if study.best is not None]
        self.best = {point.name: trial.number for point, trial in best}
        self._make([self._job(point, seed, trial) for seed in others for point, trial in best])

    def _studies(self) -> list[tuple[Point, Study]]:
        search = self.plan.ask.search
        assert search is not None
        available()
        storage = opened(self.folder)
        return [
            (point, Study(storage, point.name, search.ranges, search.trials, self.plan.seeds[0], place))
            for place, point in enumerate(self.plan.points)
        ]

    def _objective(self, entry: Entry) -> float:
        """Return the validation metric that the search maximises; NaN for a run that failed."""
        if entry.summary is None:
            return math.nan
        return validation(entry.summary, self.plan.objectives[entry.point.name])


@contextmanager
def alone(record: Path) -> Iterator[None]:
    """Nobody else works in the folder of this record while the block does: two would remove each other's runs."""
    try:
        handle = hold(record)
    except BlockingIOError:
        what = f"another process is at work on the {record.stem} in {record.parent}"
        raise InputError(f"{what}; wait for it or stop it") from None
    try:
        yield
    finally:
        os.close(handle)
