"""A tuning searches the settings of every method that was named, one after another, and goes on where it was stopped.

DIR/tuning.json            the rules, the same for all
DIR/<name>/tuning.json     the space; search.journal, trials/trial-<n>-<digest>/trial.json
DIR/recipes/<name>.yaml    a whole experiment; .csv: its trials; .md: how it was found
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from edgefr.data import datasets
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import load_fleet
from edgefr.metrics.cutoffs import metrics_at
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.studies.campaign import Fleets, digest
from edgefr.studies.jobs import HERE, Failed, Where
from edgefr.studies.jobs_on_ray import run_jobs
from edgefr.studies.sweeps.grid import Range
from edgefr.studies.sweeps.search import BATCH, EndedTrial, Study, Trial, available, best_of, open_journal
from edgefr.studies.tuning import trial as trials
from edgefr.studies.tuning.rules import RECORD, Rules, begin
from edgefr.studies.tuning.space import Base, Space
from edgefr.studies.tuning.trial import TrialJob
from edgefr.studies.tuning.wider_ranges import Widened, at_edges, widened
from privacy.errors import InputError, unknown
from privacy.progress import Progress


@dataclass(frozen=True)
class SearchResult:
    """This is what the search of one method came to.

    `ranges`: those of the last trials, and `steps`: how they were widened; `edges`: fields whose best value lies at the
    edge of its range all the same. `records`: of all trials, in their order.
    """

    space: Space
    ranges: Sequence[Range]
    steps: Sequence[Widened]
    edges: Sequence[str]
    records: Sequence[Mapping[str, Any]]
    best: EndedTrial | None
    experiment: Experiment | None


@dataclass
class Tuning:
    """These are the searches of several spaces by one set of rules in `folder`."""

    folder: Path
    base: Base
    spaces: Sequence[Space]
    rules: Rules
    fleets: Fleets
    data_dir: Path | None = None
    where: Where = HERE
    progress: Progress | None = None

    def check(self) -> None:
        """Raises `InputError` for what any trial would be refused for, before any is made."""
        available()
        self.rules.check()
        read: dict[str, Experiment] = {}
        for space in self.spaces:
            self.base.check(space)
            self._check_measured(replace(self.base, laid={}).ends(space)[0], space.name)
            ends = self.base.ends(space)
            self.fleets.check(ends)
            read |= {repr((one.data, one.data_options, one.protocol)): one for one in ends}
        for experiment in read.values():
            dataset = datasets.load(experiment.data, self.data_dir, options=experiment.data_options)
            protocol_of(experiment).cut(experiment, dataset)

    def _check_measured(self, experiment: Experiment, name: str) -> None:
        """Only what is measured along rounds of one stage is tuned here, by a metric that it has."""
        row, protocol, metric = experiment.row, experiment.protocol, self.rules.metric
        mend = "search its settings by edgefr sweep --search"
        if not protocol.entry.tuned:
            what = f"rounds over {protocol.name} are not tuned by this command, which measures one stage of rounds"
            raise InputError(f"{name}: {what}; {mend}")
        if row.stages[1] is not None:
            raise InputError(f"{name}: {row.name} ends with local training, which no round measures; {mend}")
        known = metrics_at(experiment.evaluation.k, experiment.evaluation.metrics)
        if metric not in known:
            raise unknown("--metric", metric, known)

    def run(self) -> Iterator[SearchResult]:
        """Make all trials that are left, and yield what each search came to as it ends; the same call goes on."""
        experiment = {"digest": self.base.digest, "set": list(self.base.changes), "data": self.base.data}
        fleet = load_fleet(self.fleets.devices, {}).model_dump_json(by_alias=True)
        begin(self.folder, self.rules, {"experiment": experiment, "fleet": digest(fleet)[:16]})
        with RECORD.alone(self.folder):
            for space in self.spaces:
                yield self._search(space)

    def _search(self, space: Space) -> SearchResult:
        place = self.folder / space.name
        begin(place, self.rules, {"space": space.record()})

        @cache
        def allowed(r: Range) -> bool:
            try:
                self.base.ends(space, [r if r.field == one.field else one for one in space.ranges])
            except InputError:
                return False
            return True

        rules, journal = self.rules, open_journal(place)
        study = Study(journal, "tuning", space.ranges, rules.trials, rules.seeds[0], 0, space.first)
        self._tell(space, study.ended)
        while True:
            ranges, steps = widened(space.ranges, study.ended, rules.trials, allowed)
            study.widen(ranges)
            if not (batch := study.ask()):
                break
            study.tell(self._make(space, study.ended, batch))
        records, top = [self._record(space, one.trial) for one in study.ended], study.best
        edges = [r.field for r, _ in at_edges(ranges, top, allowed)]
        chosen = None if top is None else self.base.of(space, top.trial.values, min(self.rules.reported, default=0))
        return SearchResult(space, ranges, steps, edges, records, top, chosen)

    def _make(self, space: Space, ended: Sequence[EndedTrial], batch: Sequence[Trial]) -> list[EndedTrial]:
        """Make the trials of a batch that have no record; `InputError` where one fails for a reason outside it."""
        earlier = [self._record(space, one.trial) for one in ended[: len(ended) - len(ended) % BATCH]]
        kept = [(trial, trials.read(self._place(space, trial))) for trial in batch]
        done = [EndedTrial(trial, trials.value_of(record)) for trial, record in kept if record is not None]
        left = [self._job(space, trial, earlier) for trial, record in kept if record is None]
        for job, made in run_jobs(trials.make, left, self.data_dir, self.where, self.folder):
            if isinstance(made, Failed):
                what = f"{space.name}, trial {job.trial.number}"
                raise InputError(f"{what}: {made.why}; it was not counted, and the same command makes it again")
            done.append(EndedTrial(job.trial, made))
            self._tell(space, [*ended, *done])
        return done

    def _job(self, space: Space, trial: Trial, earlier: Sequence[Mapping[str, Any]]) -> TrialJob:
        experiments, place = [self.base.of(space, trial.values, s) for s in self.rules.seeds], self._place(space, trial)
        known = earlier if self.rules.prune else ()
        return TrialJob(trial, experiments, self.fleets.of(experiments[0]), self.rules, known, place)

    def _place(self, space: Space, trial: Trial) -> Path:
        return self.folder / space.name / "trials" / trial.folder

    def _record(self, space: Space, trial: Trial) -> Mapping[str, Any]:
        place = self._place(space, trial)
        found = trials.read(place)
        if found is None:
            raise InputError(
                f"{place / trials.RECORD.name} is gone, and the search cannot go on without it; put it back"
            )
        return found

    def _tell(self, space: Space, ended: Sequence[EndedTrial]) -> None:
        if self.progress is not None:
            top = best_of(ended)
            note = "" if top is None else f"validation {self.rules.metric} {top.value:.4f} (trial {top.trial.number})"
            self.progress(space.name, len(ended), self.rules.trials, note)
