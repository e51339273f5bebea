"""The runs of a paper are made once each; those over blocks share base blocks, as a strategy begins with the second."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud.rules.mean import MeanSettings
from edgefr.data.prepared_data import Prepared
from edgefr.engine.device import torch_device
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.resolve import resolve
from edgefr.simulation.runs import checkpoint
from edgefr.simulation.runs.keeper import owner
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import finish_run
from edgefr.studies.campaign import finished
from edgefr.studies.jobs import HERE, Failed, Where
from edgefr.studies.jobs_on_ray import run_jobs
from privacy.errors import InputError
from privacy.progress import Progress

IDEAL_FLEET: dict[str, Any] = {
    "availability": None,
    "dropout": 0.0,
    "battery": None,
    "rounds": {"over_select": 1.0, "deadline_s": 604800.0, "min_fraction": 0.0},
}
"""Overrides of devices.yaml under which everybody who is asked contributes, as the papers assume."""


def ideal_fleet() -> dict[str, Any]:
    """`IDEAL_FLEET` in the layout of devices.yaml, as `load_fleet` takes it."""
    return {"fleet": {k: v for k, v in IDEAL_FLEET.items() if k != "rounds"}, "rounds": IDEAL_FLEET["rounds"]}


@dataclass(frozen=True)
class Job:
    """A job is one experiment to be run into `out`."""

    experiment: Experiment
    out: Path


@dataclass(frozen=True)
class JobSetting:
    """All jobs have this in common. `bases`: folder of shared base blocks."""

    fleet: FleetFile
    data_dir: Path | None
    bases: Path


def base_of(experiment: Experiment) -> Experiment:
    """Return the part of an experiment that decides its base block: the same for all strategies and server rules.

    What is kept of blocks is taken at their ends, which a base does not reach.
    """
    asked = {name: value for name, value in experiment.aggregation if name in MeanSettings.model_fields}
    aggregation = MeanSettings.model_validate(asked | {"rule": "mean"})  # by a plain mean, as in a base block
    continual = type(experiment.continual)(patience=experiment.continual.patience)
    update = {"name": "base", "strategy": "ft", "aggregation": aggregation, "continual": continual}
    evaluation = experiment.evaluation.model_copy(update={"keep_blocks": False})
    return experiment.model_copy(update={**update, "evaluation": evaluation})


def check_fleets(experiments: Sequence[Experiment], fleet: FleetFile) -> None:
    """Raise `InputError` for a value under `fleet` that is not what all runs have in common: nothing would read it."""
    dumped = fleet.model_dump(mode="json", by_alias=True)
    own = {**dumped["fleet"], "rounds": dumped["rounds"], "cost": dumped["cost"]}
    for experiment in experiments:
        for name in _departing(experiment.fleet, own, "fleet"):
            raise InputError(
                f"{name} is not what it is in the fleet that all rows of a page share, so no run would read it; drop "
                "it from the recipe or --set, or run that experiment alone by edgefr simulate"
            )


def _departing(asked: Mapping[str, Any], own: Mapping[str, Any], under: str) -> Iterator[str]:
    """Yield the dotted names of what is asked for and is not there, or not so."""
    for name, value in asked.items():
        if isinstance(value, dict) and isinstance(own.get(name), dict):
            yield from _departing(value, own[name], f"{under}.{name}")
        elif name not in own or own[name] != value:
            yield f"{under}.{name}"


def run_all(
    jobs: Sequence[Job], setting: JobSetting, where: Where = HERE, progress: Progress | None = None
) -> Iterator[tuple[Job, Run | str]]:
    """Run every job that has no summary yet, base blocks first; yields each with its run or with what went wrong.

    Jobs over other protocols than blocks need no base. Stop it at any time: finished runs and bases stay, and the same
    call goes on from there. Raises `InputError`, before any run, where an experiment asks for another fleet.
    """
    check_fleets([job.experiment for job in jobs], setting.fleet)
    yield from ((job, Run(job.out)) for job in jobs if finished(job.out))
    left = [job for job in jobs if not finished(job.out)]
    over_blocks = [job for job in left if job.experiment.protocol.entry.hands_on]
    bases = list({base_of(j.experiment).model_dump_json(): j for j in over_blocks}.values())
    folder = setting.bases.parent  # which has the runs too
    for stage, call, some in (("base blocks", _make_base, bases), ("runs", run_job, left)):
        for done, (job, made) in enumerate(run_jobs(call, some, setting, where, folder), 1):
            if progress is not None:
                progress(stage, done, len(some), job.out.name)
            if isinstance(made, Failed):
                yield job, made.why
            elif stage == "runs":
                yield job, Run(job.out)


def _make_base(job: Job, setting: JobSetting) -> str:
    """Learn the base block of a job's experiment once; its state just before the block ends is kept."""
    experiment, prepared = _ready(base_of(job.experiment), setting)
    belongs_to = owner(experiment, setting.fleet, prepared)
    folder = setting.bases / belongs_to[:16]
    if checkpoint.newest(folder, belongs_to, print) is not None:
        return str(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = Run(folder)
    training = _started(run, experiment, prepared, setting)
    try:
        training.learn()
        state = {"training": training.state(), "events": run.log.flush()}
        checkpoint.write(folder, training.rounds, state, belongs_to)
    finally:
        training.federation.backend.close()
    return str(folder)


def run_job(job: Job, setting: JobSetting) -> str:
    """Run one experiment to its summary, from its base block if it has one, without a page and bundles."""
    began = time.perf_counter()
    experiment, prepared = _ready(job.experiment, setting)
    shutil.rmtree(job.out, ignore_errors=True)  # what an interrupted call left: it has no summary
    run = Run.create(job.out)
    run.write_experiment(experiment)
    run.write_devices(setting.fleet)
    state = _taken_over(run, experiment, prepared, setting) if experiment.protocol.entry.hands_on else None
    training = _started(run, experiment, prepared, setting)
    if state is not None:
        training.restore(state)
    finish_run(run, training, page=False, began=began)
    return str(run.path)


def _taken_over(run: Run, experiment: Experiment, prepared: Prepared, setting: JobSetting) -> dict[str, Any]:
    """Return the state of the experiment's base block, whose events become the run's first."""
    belongs_to = owner(base_of(experiment), setting.fleet, prepared)
    found = checkpoint.newest(setting.bases / belongs_to[:16], belongs_to, print)
    if found is None:
        raise RuntimeError("its base block could not be made")
    shutil.copyfile(setting.bases / belongs_to[:16] / "events.jsonl", run.path / "events.jsonl")
    run.log.cut(found.state["events"])
    return found.state["training"]


def _started(run: Run, experiment: Experiment, prepared: Prepared, setting: JobSetting) -> Training:
    device = torch_device(experiment.engine.device)
    key = run.noise_key(experiment.draws_noise)
    if key is not None:
        run.bind(key, owner(experiment, setting.fleet, prepared))
    return Training.start(experiment, prepared, setting.fleet, device, run.log.append, key)


def _ready(experiment: Experiment, setting: JobSetting) -> tuple[Experiment, Prepared]:
    prepared = prepare(experiment, setting.data_dir, "cpu")
    return resolve(experiment, prepared, setting.fleet).experiment, prepared
