"""A small continual experiment, ready to run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from edgefr.continual import Continual
from edgefr.experiment import Experiment, load_experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.prepare import Prepared, prepare
from edgefr.reproduce.runs import IDEAL_FLEET

SMALL = [
    "method=f3crec",
    "data=demo",
    "data_options.users=60",
    "data_options.items=100",
    "protocol.min_interactions=2",
    "rounds=4",
    "batch_size=64",
    "engine.shard_size=16",
    "continual.list_size=5",
    "continual.shift_scale=0.001",
    "model.dim=6",
]


def experiment(*overrides: str) -> Experiment:
    return load_experiment(overrides=[*SMALL, *overrides])


@cache
def ideal_fleet() -> FleetFile:
    fleet = {key: value for key, value in IDEAL_FLEET.items() if key != "rounds"}
    return load_fleet(Path("devices.yaml"), {"fleet": fleet, "rounds": IDEAL_FLEET["rounds"]})


@cache
def _prepared(*overrides: str) -> Prepared:
    return prepare(experiment(*overrides), None, "cpu")


def begun(*overrides: str) -> Continual:
    """The experiment before its first round; every client contributes."""
    chosen = experiment(*overrides)
    prepared = _prepared(*(text for text in overrides if text.startswith(("data", "fidelity"))))
    return Continual.start(chosen, prepared, ideal_fleet(), torch.device("cpu"), lambda events: None)
