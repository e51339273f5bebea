"""A run: a schedule of stages over tasks, learned in federated rounds by one loop.

    for stage in schedule: for round in stage: cohort → clients' work → shard aggregates → server step → callbacks

Owns: the order of stages and rounds, where a run is, the best model of a stage, one state for checkpoints. Does not
own: what differs between protocols (`edgefr.simulation.stages.schedule`), rounds (`engine.federation`), who takes part
(`participation`), metrics (`measure`), files (`run`, `checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import numpy as np
import torch

from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import Fleet, FleetFile
from edgefr.simulation.callbacks import Callback, measure, shown
from edgefr.simulation.evaluation.beyond import About
from edgefr.simulation.evaluation.measure import Measurements
from edgefr.simulation.participation import Log, Participation
from edgefr.simulation.resolve import Resolved, resolve
from edgefr.simulation.server import federate
from edgefr.simulation.stages.stage import Position, Running
from privacy.noise_key import NoiseKey
from privacy.progress import Progress, heard


class Training(Running):
    """This is a running experiment with its loop."""

    @classmethod
    def start(
        cls,
        experiment: Experiment,
        prepared: Prepared,
        devices: FleetFile,
        device: torch.device,
        log: Log,
        noise_key: NoiseKey | None = None,
        resolved: Resolved | None = None,
    ) -> Training:
        """Return everything as it is before round 1.

        `log` takes the events; `noise_key` keys simulated noise (None: a key that nobody keeps). `resolved`: what the
        experiment comes to (None: it is worked out here).
        """
        about = About.of(prepared.dataset.catalogue)
        about.check(experiment.evaluation.metrics)
        resolved = resolve(experiment, prepared, devices) if resolved is None else resolved
        fleet = Fleet(devices, np.diff(prepared.dataset.offsets), experiment.seed)
        federation = federate(experiment, resolved, len(prepared.dataset.users), device, noise_key)
        participation = Participation(experiment.cohort_size, experiment.privacy, federation, fleet, log)
        measured = Measurements(experiment.evaluation, experiment.seed, about)
        return cls(experiment, prepared, federation, participation, measured, resolved.schedule, resolved.strategy)

    def train(self, callbacks: Iterable[Callback] = (), progress: Progress | None = None) -> None:
        """Go through all stages from where the run is; `callbacks` hear of every round after the learning curve."""
        told = [measure, *([] if progress is None else [shown(progress)]), *callbacks]
        with heard(progress):
            while self.position.stage < len(self.schedule):
                self.train_stage(told, progress)

    def _before_any_round(self) -> None:
        """Test the model that rounds start from, and make it round 0 of the learning curve."""
        model = self.stage.first(self)
        for stage in self.schedule:
            stage.unlearned(self, model)
        self.stage.validate(self, model)

    def train_stage(self, callbacks: Iterable[Callback] = (measure,), progress: Progress | None = None) -> None:
        """Go through the rest of the present stage: its rounds, its tests, what is remembered and handed on."""
        self.learn(callbacks)
        stage, at = self.stage, self.position
        if stage.federated:
            self.participation.adjourn()
        if stage.keeps_best and self.best is None:  # no round could be measured
            self.best, at.best_round = stage.model(self).copy(self.federation.program), at.round
        model = self.best if stage.keeps_best and self.best is not None else stage.model(self)
        self.final = stage.end(self, model, progress)
        self.done.append({**asdict(at), "name": stage.task.name, "statistics": stage.statistics(), **self._timing()})
        self.position, self.curve = Position(at.stage + 1), {}

    def learn(self, callbacks: Iterable[Callback] = (measure,)) -> None:
        """Go through the rounds of the present stage that are left: all, or until validation stops improving."""
        stage, at = self.stage, self.position
        self.engage()
        while not stage.over(at):
            at.round += 1
            stage.work(self, at.round)
            stage.after_round(self)
            for callback in callbacks:
                callback(self)

    def engage(self) -> None:
        """Make the federation ready for the present stage; what the stage before hands on is taken over once."""
        self.stage.begin(self)
        if self.position == Position():
            self._before_any_round()
        self.position.begun = True

    def _timing(self) -> dict[str, float]:
        """Return speed and seconds of the stage that ends."""
        now = [self.federation.counters.seconds, float(self.federation.counters.clients), self.measured.seconds]
        seconds, clients, measuring = (a - b for a, b in zip(now, self.spent, strict=True))
        self.spent = now
        speed = clients / seconds if seconds else 0.0
        return {"clients_per_second": speed, "train_seconds": seconds, "eval_seconds": measuring}
