"""Stages are what a protocol makes of a run: a schedule of rounds over tasks.

`schedule_of` looks a protocol's schedule up by its name; each kind of stage has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from edgefr.data.task import Task
from edgefr.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.prepare import Prepared
from edgefr.stages.blocks import over_blocks
from edgefr.stages.leave_one_out import over_splits
from edgefr.stages.sessions import over_sessions
from edgefr.stages.stage import Position, Stage
from privacy.errors import unknown

__all__ = ["Position", "Stage", "Task", "schedule_of"]

Schedule = Callable[[Experiment, Prepared], tuple[Stage, ...]]

SCHEDULES: dict[str, Schedule] = {
    "leave-one-out": over_splits,
    "cross-domain": over_splits,
    "blocks": over_blocks,
    "sessions": over_sessions,
}
"""The schedule of a run by the name of its protocol."""


def schedule_of(experiment: Experiment, prepared: Prepared, devices: FleetFile) -> tuple[Stage, ...]:
    """The stages of a run in their order. Raises `InputError` where the fleet's rounds do not suit the protocol."""
    name = experiment.protocol.name
    if name not in SCHEDULES:
        raise unknown("protocol", name, SCHEDULES)
    stages = SCHEDULES[name](experiment, prepared)
    for stage in stages:
        stage.check(devices)
    return stages
