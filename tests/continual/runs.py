"""A small continual experiment, ready to run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from edgefr.data.prepared_data import Prepared
from edgefr.experiment.continual import strategy
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.studies.reproductions.runs import IDEAL_FLEET
from tests.federations import begun as begun_run

SMALL = [
    "method=f3crec",
    "data=demo",
    "data_options.users=60",
    "data_options.items=100",
    "protocol.min_interactions=2",
    "rounds=4",
    "batch_size=64",
    "engine.shard_size=16",
    "model.dim=6",
]
OF_STRATEGIES = ("continual.list_size=5", "continual.shift_scale=0.001")


def experiment(*overrides: str) -> Experiment:
    """The small experiment with these changes; what its strategy does not read is left out."""
    names = [text.partition("=")[2] for text in overrides if text.startswith("strategy=")]
    return load_experiment(overrides=[*SMALL, *read_by(names[-1] if names else "f3crec", *OF_STRATEGIES), *overrides])


def read_by(name: str, *overrides: str) -> list[str]:
    """Those of `continual.key=value` whose key a strategy reads."""
    return [text for text in overrides if text.partition("=")[0].removeprefix("continual.") in strategy(name).reads]


@cache
def ideal_fleet() -> FleetFile:
    fleet = {key: value for key, value in IDEAL_FLEET.items() if key != "rounds"}
    return load_fleet(Path("devices.yaml"), {"fleet": fleet, "rounds": IDEAL_FLEET["rounds"]})


@cache
def _prepared(*overrides: str) -> Prepared:
    return prepare(experiment(*overrides), None, "cpu")


def begun(*overrides: str) -> Training:
    """The experiment before its first round; every client contributes."""
    chosen = experiment(*overrides)
    prepared = _prepared(*(text for text in overrides if text.startswith(("data", "fidelity"))))
    return begun_run(chosen, prepared, ideal_fleet())
