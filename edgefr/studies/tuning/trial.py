"""A trial is the rounds of one choice of settings, measured on validation items along the way, and nothing else.

No test item is ranked, no bundle is made, nothing of a client is written.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.studies.campaign import RecordFile
from edgefr.studies.jobs import said
from edgefr.studies.sweeps.search import Trial
from edgefr.studies.tuning.rules import Rules
from privacy.files import write_json

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running

RECORD = RecordFile("trial.json", "edgefr.trial/1", "remove it, and the trial is made again")
ALL, NO_BETTER, BELOW = "all rounds", "no better", "below the median"
"""Why a trial ended."""

CurvePoint = tuple[int, float]
"""A round and its value on validation items."""


@dataclass(frozen=True)
class TrialJob:
    """This is a trial to be made into the folder `out`, an experiment per seed.

    `earlier`: the records of trials of earlier batches, which it is compared with where the rules say so.
    """

    trial: Trial
    experiments: Sequence[Experiment]
    fleet: FleetFile
    rules: Rules
    earlier: Sequence[Mapping[str, Any]]
    out: Path


def make(job: TrialJob, data_dir: Path | None) -> float:
    """Make a trial, write its record, and return its value: NaN where the maths of its choice came to no number.

    Whatever else goes wrong says nothing of the choice: it is raised, and nothing is written.
    """
    import torch

    began, values, runs = time.process_time(), list[float](), list[dict[str, Any]]()
    try:
        for experiment in job.experiments:
            one = _rounds(job, experiment, data_dir)
            top, value = best(one.points)
            values.append(value)
            curve = [[number, _number(found)] for number, found in one.points]
            run = {"seed": experiment.seed, "value": _number(value), "best_round": top}
            runs.append({**run, "ended": one.ended, "curve": curve})
    except (ArithmeticError, np.linalg.LinAlgError, torch.linalg.LinAlgError) as error:
        _write(job, math.nan, {"problem": said(error), "runs": [], "cpu_seconds": 0.0})
        return math.nan
    value = math.fsum(values) / len(values)
    measured = {"metric": job.rules.metric, "on": "validation items", "ranking": job.rules.ranking, "runs": runs}
    _write(job, value, measured | {"cpu_seconds": time.process_time() - began})
    return value


def _write(job: TrialJob, value: float, rest: Mapping[str, Any]) -> None:
    record = {"schema": RECORD.schema, "number": job.trial.number, "values": job.trial.values, "value": _number(value)}
    write_json(job.out / RECORD.name, {**record, **rest})


def read(folder: Path) -> dict[str, Any] | None:
    """Return the record of a trial that has ended; None where there is none. Raises `InputError` for a damaged one."""
    return RECORD.read(folder) if (folder / RECORD.name).is_file() else None


def value_of(record: Mapping[str, Any]) -> float:
    """Return what a trial came to; NaN for one that failed."""
    return math.nan if record["value"] is None else float(record["value"])


def best(points: Sequence[CurvePoint]) -> CurvePoint:
    """Return the best round and its value, the first of equals; NaN where nothing could be measured.

    >>> best([(5, 0.1), (10, 0.3), (15, 0.3)])
    (10, 0.3)
    """
    fine = [point for point in points if math.isfinite(point[1])]
    return max(fine, key=lambda point: (point[1], -point[0]), default=(0, math.nan))


def bars(records: Sequence[Mapping[str, Any]], looks: Sequence[int]) -> dict[int, float]:
    """Return by look the median of what earlier trials had come to there; no bar where none got so far.

    >>> bars([{"runs": [{"curve": [[5, 0.1], [10, 0.3]]}]}, {"runs": [{"curve": [[5, 0.2]]}]}], (5, 10))
    {5: 0.15000000000000002, 10: 0.3}
    """
    out = {}
    for look in looks:
        curves = [run["curve"] for record in records for run in record["runs"]]
        found = [
            best([(number, value) for number, value in curve if number <= look and value is not None])[1]
            for curve in curves
            if curve and curve[-1][0] >= look
        ]
        fine = [value for value in found if math.isfinite(value)]
        if fine:
            out[look] = statistics.median(fine)
    return out


class _Enough(Exception):
    """This ends the rounds of a trial."""


@dataclass
class Watched:
    """This hears of every round of a trial, keeps its points, and ends it where the rules say so."""

    rules: Rules
    bars: Mapping[int, float]
    points: list[CurvePoint] = field(default_factory=list)
    ended: str = ALL

    def __call__(self, run: Running) -> None:
        """Take note of a round that was just measured, if it was."""
        number = run.position.round
        wanted = {"which": "valid", "round": number, "metric": self.rules.metric, "group": "all"}
        found = (row["value"] for row in reversed(run.measured.rows) if wanted.items() <= row.items())
        if (value := next(found, None)) is not None:
            self.take(number, float(value))

    def take(self, number: int, value: float) -> None:
        """Keep a point; raises to end the rounds."""
        before = self.points[-1][0] if self.points else 0
        self.points.append((number, value))
        top = best(self.points)
        if number - top[0] >= self.rules.patience:
            self.ended = NO_BETTER
            raise _Enough
        passed = [bar for look, bar in self.bars.items() if before < look <= number]
        if any(not top[1] >= bar for bar in passed):
            self.ended = BELOW
            raise _Enough


def _rounds(job: TrialJob, experiment: Experiment, data_dir: Path | None) -> Watched:
    """Go through the rounds of a choice with one seed."""
    from edgefr.engine.device import torch_device
    from edgefr.simulation.loop import Training, measure
    from edgefr.simulation.prepare import prepare

    device = torch_device(experiment.engine.device)
    prepared = prepare(experiment, data_dir, str(device))
    run = Training.start(experiment, prepared, job.fleet, device, lambda events: None)
    run.measured.sealed = True
    watched = Watched(job.rules, bars(job.earlier, job.rules.looks(run.schedule[0].rounds)))
    try:
        run.learn([measure, watched])
        if not watched.points:  # without rounds, what is there at the end counts
            stage = run.schedule[0]
            watched.points.append((0, stage.validate(run, stage.model(run))[job.rules.metric]))
    except _Enough:
        pass
    finally:
        run.federation.backend.close()
    return watched


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
