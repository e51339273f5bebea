"""A run: a schedule of stages over tasks, learned in federated rounds by one loop.

    for stage in schedule: for round in stage: cohort → clients' work → shard aggregates → server step → callbacks

Owns: the server and its clients before round 1, the order of stages and rounds, where a run is, the best model of a
stage, what is told of a round. Does not own: what differs between protocols (`edgefr.simulation.stages`), rounds
(`engine.federation`), who takes part (`participation`), metrics (`measure`), files (`run`, `checkpoint`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import torch

from cloud.prototypes import KnowledgeBase
from edgefr.config.executors import BACKENDS
from edgefr.data.prepared_data import Prepared
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors.dp_sgd import DPSGD
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.transfer import Order, Relay, Transfer
from edgefr.experiment.continual import strategy
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import Fleet, FleetFile
from edgefr.methods.f3crec.block_strategy import keeping
from edgefr.simulation.evaluation.beyond import About
from edgefr.simulation.evaluation.measure import Measurements
from edgefr.simulation.participation import Log, Participation
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.resolve import Resolved, resolve
from edgefr.simulation.stages.stage import Position, Running
from privacy.ledger import Ledger
from privacy.noise_key import NoiseKey
from privacy.progress import Progress, heard

Callback = Callable[[Running], None]
"""Is told of a round that is done and measured; an exception stops the run."""


def measure(run: Running) -> None:
    """Measure a point of the learning curve where one is due, and keep the stage's best model.

    A round after which there would be no other is measured too, whatever `evaluation.every` is.
    """
    stage, at = run.stage, run.position
    if at.round % run.experiment.evaluation.every and not stage.over(at):
        return
    model = stage.model(run)
    run.curve = stage.validate(run, model)
    if stage.keeps_best:
        value = stage.value(run.curve)
        worse = value < at.best or (value == at.best and not stage.latest_of_equals)
        if not worse:  # nobody to validate on (NaN): the last round counts as best
            at.best, at.best_round, run.best = value, at.round, model.copy(run.federation.program)


def _shown(progress: Progress) -> Callback:
    """Tell `progress` of every round: how fast clients work, and the newest point of the learning curve."""

    def show(run: Running) -> None:
        stage, counters = run.stage, run.federation.counters
        speed = [f"{counters.clients / max(counters.seconds, 1e-9):,.0f} clients/s"] if stage.federated else []
        points = [f"validation {name} {value:.4f}" for name, value in list(run.curve.items())[:2]]
        progress(stage.label, run.position.round, stage.rounds, ", ".join([*speed, *points]))

    return show


def _federation(
    experiment: Experiment, resolved: Resolved, users: int, device: torch.device, key: NoiseKey
) -> Federation:
    """Return the server and its `users` clients before round 1, with what handles messages beside updates.

    The plan holds for asynchronous rounds too: a client uploads once per round at most, an old update weighs no more
    than a new one and is whole steps of the grid like it, and the broadcast it started from was public before. With
    DP-SGD on the device clients learn in this process, one after another, with noise of `key`.
    """
    engine, seed, examples = experiment.engine, experiment.seed, resolved.examples
    program, terms = resolved.program, resolved.plan.prototypes
    steps = None if examples is None else InProcess(DPSGD(examples.clip, examples.sigma, key))
    federation = Federation(
        program,
        clients=users,
        seed=seed,
        backend=steps or BACKENDS[engine.executor].make(engine),
        noise=SimulatedNoise(key, seed),
        shard_size=resolved.shard_size,
        aggregation=experiment.aggregation,
        plan=resolved.plan,
        device=device,
        keeps="evaluation.tables" in experiment.protocol.entry.own and experiment.evaluation.tables == "own",
    )
    if terms is not None and terms.through == "relay":
        assert program.reply is not None
        federation.transfer = Relay(program.reply, terms, seed, key)
    elif terms is not None:
        base = KnowledgeBase(terms.values, experiment.knowledge, device)
        federation.transfer = Transfer(base, cast(Order, program.publishes), terms, seed, key)
    return federation


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
        earlier: Ledger | None = None,
    ) -> Training:
        """Return everything as it is before round 1.

        `log` takes the events; `noise_key` keys simulated noise (None: a key that nobody keeps). `resolved`: what the
        experiment comes to (None: it is worked out here). `earlier`: what its clients had released before (None:
        nothing that was counted).
        """
        about = About.of(prepared.dataset.catalogue)
        about.check(experiment.evaluation.metrics)
        resolved = resolve(experiment, prepared, devices) if resolved is None else resolved
        key = NoiseKey.new() if noise_key is None else noise_key
        federation = _federation(experiment, resolved, len(prepared.dataset.users), device, key)
        fleet = Fleet(devices, np.diff(prepared.dataset.offsets), experiment.seed)
        participation = Participation(experiment.cohort_size, experiment.privacy, federation, fleet, log)
        if earlier is not None:
            participation.go_on_from(earlier)
        measured = Measurements(experiment.measured, experiment.seed, about)
        return cls(
            experiment,
            prepared,
            federation,
            participation,
            measured,
            resolved.schedule,
            keeping(strategy(experiment.strategy), experiment.over_blocks, experiment.seed),
            resolved.examples,
            resolved.attackers,
        )

    def results(self) -> dict[str, Any]:
        """Return what its protocol says of the finished run."""
        return protocol_of(self.experiment).results(self)

    def train(self, callbacks: Iterable[Callback] = (), progress: Progress | None = None) -> None:
        """Go through all stages from where the run is; `callbacks` hear of every round after the learning curve."""
        told = [measure, *([] if progress is None else [_shown(progress)]), *callbacks]
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
        now = [self.federation.counters.seconds, float(self.federation.counters.clients), self.measured.seconds]
        seconds, clients, measuring = (a - b for a, b in zip(now, self.spent, strict=True))
        self.spent = now
        speed = clients / seconds if seconds else 0.0
        return {"clients_per_second": speed, "train_seconds": seconds, "eval_seconds": measuring}
