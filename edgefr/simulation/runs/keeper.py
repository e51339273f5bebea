"""Checkpoints of a run are taken at round boundaries, and belong to exactly one experiment on its data and fleet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgefr.config.executors import WHO_WORKS
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.paths import without_folders
from edgefr.fleet import FleetFile
from edgefr.simulation.runs import checkpoint
from edgefr.simulation.runs.layout import CHECKPOINT
from edgefr.simulation.runs.run import Run

if TYPE_CHECKING:
    from edgefr.simulation.loop import Training
    from edgefr.simulation.stages.stage import Running

Warn = Callable[[str], None]


def owner(experiment: Experiment, fleet: FleetFile, prepared: Prepared) -> str:
    """Return a digest of everything that decides a run's result: a checkpoint of another one is refused.

    Who does the work does not decide it.
    """
    values = experiment.model_dump()
    without_folders(values)
    values["engine"] = {k: v for k, v in values["engine"].items() if k not in WHO_WORKS}
    columns = prepared.dataset
    return checkpoint.digest(
        repr(values), fleet.model_dump_json(by_alias=True), columns.user, columns.item, columns.moment
    )


def asked(experiment: Experiment, fleet: FleetFile) -> str:
    """Return a digest of an experiment on a fleet, whoever does the work and whatever the data turn out to be."""
    values = experiment.model_dump(exclude={"engine"})
    without_folders(values)
    return checkpoint.digest(repr(values), fleet.model_dump_json(by_alias=True))


@dataclass
class Keeper:
    """Takes checkpoints of a run at round boundaries, and brings it back to the newest one."""

    run: Run
    belongs_to: str
    every: int | None

    def __call__(self, training: Running) -> None:
        """Take a checkpoint at the end of a round, if it is time for one."""
        if self.every and training.rounds % self.every == 0:
            keep_ledger(self.run, training)  # first, so that the file lacks no release that the checkpoint knows
            state = {"training": training.state(), "events": self.run.log.flush(), "every": self.every}
            checkpoint.write(self.run.closed(CHECKPOINT), training.rounds, state, self.belongs_to)

    def restore(self, training: Training, warn: Warn) -> None:
        """Go on from the newest whole checkpoint, and take further ones as often as before unless told otherwise.

        The log of events is cut back to it.
        """
        found = checkpoint.newest(self.run.path / CHECKPOINT, self.belongs_to, warn)
        self.run.log.cut(0 if found is None else found.state["events"])
        if found is not None:
            training.restore(found.state["training"])
            self.every = found.state["every"] if self.every is None else self.every


def keep_ledger(run: Run, training: Running) -> None:
    """Write what the clients have released so far, if that is counted."""
    if training.participation.ledger is not None:
        run.write_ledger(training.participation.ledger)
