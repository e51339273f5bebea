"""Stages are what a protocol makes of a run: a schedule of rounds over tasks; each kind has a file of its own."""

from __future__ import annotations

from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Task
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.stages.stage import Position, Stage

__all__ = ["Position", "Stage", "Task", "schedule_of"]


def schedule_of(experiment: Experiment, prepared: Prepared, devices: FleetFile) -> tuple[Stage, ...]:
    """Return the stages of a run in their order; `InputError` where the fleet's rounds do not suit the protocol."""
    protocol = experiment.protocol
    stages: tuple[Stage, ...] = protocol_of(experiment).stages(experiment, prepared)
    learned = sum(stage.federated for stage in stages)
    if experiment.row.central is None and learned != protocol.learned:
        raise TypeError(f"protocol {protocol.name} speaks of {protocol.learned} stages with rounds and makes {learned}")
    for stage in stages:
        stage.check(devices)
    return stages
