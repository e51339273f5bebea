"""A run: a schedule of stages over tasks, learned in federated rounds by one loop.

    for stage in schedule: for round in stage: cohort → clients' work → shard aggregates → server step → callbacks

Owns: the order of stages and rounds, where a run is, the best model of a stage, one state for checkpoints. Does not
own: what differs between protocols (`edgefr.simulation.stages.schedule`), rounds (`engine.federation`), who takes part
(`participation`), metrics (`measure`), files (`run`, `checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edge.ragged import Ragged, joined
from edge.sampling import Sampler
from edgefr.data.prepared import Prepared
from edgefr.data.splits.task import Task
from edgefr.engine.federation import Federation
from edgefr.engine.model import Model
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import Clients
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import Method
from edgefr.fleet import Fleet, FleetFile
from edgefr.methods.f3crec.keeping import Keeping, keeping
from edgefr.methods.regularised import PREVIOUS
from edgefr.simulation.callbacks import Callback, measure, shown
from edgefr.simulation.evaluation.beyond import About
from edgefr.simulation.evaluation.measure import Measurements, Tested
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.participation import Log, Participants, Participation
from edgefr.simulation.setup import build_program, federate
from edgefr.simulation.stages.schedule import schedule_of
from edgefr.simulation.stages.stage import Position, Stage
from export.model import Names, TrainedModel
from export.program import LocalProgram, read_by
from privacy.noise_key import NoiseKey
from privacy.progress import Progress, heard


@dataclass
class Training:
    """This is a running experiment.

    `best` is the model of the stage's best round (None: none was measured yet; until it is handed on, that of the stage
    before), `final` the one that the last finished stage left its users with. `done` has a record of each finished
    stage; `saved` the tensors that `evaluation.keep_blocks` asks for, by `block<t>.<name>`; `spent` the seconds of
    training, client updates and seconds of measuring before this stage; `curve` is the learning curve's newest point.
    """

    experiment: Experiment
    prepared: Prepared
    federation: Federation
    participation: Participants
    measured: Measurements
    schedule: tuple[Stage, ...]
    keeping: Keeping
    position: Position = field(default_factory=Position)
    best: Model | None = None
    final: Model | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    saved: dict[str, Tensor] = field(default_factory=dict)
    spent: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    curve: dict[str, float] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        experiment: Experiment,
        prepared: Prepared,
        devices: FleetFile,
        device: torch.device,
        log: Log,
        noise_key: NoiseKey | None = None,
    ) -> Training:
        """Return everything as it is before round 1.

        `experiment.engine.shard_size` must be set; `log` takes the events; `noise_key` keys simulated noise (None: a
        key that nobody keeps).
        """
        schedule = schedule_of(experiment, prepared, devices)
        population = len(np.flatnonzero(schedule[0].task.train.counts))
        about = About.of(prepared.dataset.catalogue)
        about.check(experiment.evaluation.metrics)
        fleet = Fleet(devices, np.diff(prepared.dataset.offsets), experiment.seed)
        federation = federate(experiment, prepared, devices, population, experiment.total_rounds, device, noise_key)
        participation = Participation(experiment, federation, fleet, log)
        measured = Measurements(experiment.evaluation, experiment.seed, about)
        return cls(experiment, prepared, federation, participation, measured, schedule, keeping(experiment))

    @property
    def fleet(self) -> Fleet:
        """Return the simulated devices and their clock."""
        assert isinstance(self.participation, Participation)
        return self.participation.fleet

    @property
    def row(self) -> Method:
        """Return the method's row of the table."""
        return self.experiment.row

    @property
    def stage(self) -> Stage:
        """Return the stage that is being learned."""
        return self.schedule[self.position.stage]

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the names of the method's models: after the rounds and, if it has any, after local training."""
        return tuple(name for name in self.row.stages if name is not None)

    @cached_property
    def names(self) -> Names:
        """Return what users and items are called outside."""
        users, items = self.prepared.dataset.users, self.prepared.dataset.catalogue
        return Names([str(u) for u in users], [str(i) for i in items.ids], list(items.title), list(items.text))

    @property
    def clients(self) -> Clients:
        """Return everybody who could be invited to some round."""
        return np.unique(np.concatenate([np.flatnonzero(s.task.train.counts) for s in self.schedule if s.federated]))

    @property
    def rounds(self) -> int:
        """Return the number of rounds that were done in all stages so far."""
        return sum(done["round"] for done in self.done) + self.position.round

    # --- the loop -------------------------------------------------------------------------------------------------

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

    def round(self, stage: Stage, number: int) -> None:
        """Run one federated round: who takes part, what they learn, the server's step."""
        population, sampler = stage.turn(self, number)
        if not len(population):
            return
        contributors = self.participation.meet(stage.before + number, population, sampler)
        if len(contributors):
            context = stage.context(number) if self.federation.program.needs_history else stage.task.train
            self.federation.round(stage.before + number, contributors, sampler, context)

    def _timing(self) -> dict[str, float]:
        """Return speed and seconds of the stage that ends."""
        now = [self.federation.counters.seconds, float(self.federation.counters.clients), self.measured.seconds]
        seconds, clients, measuring = (a - b for a, b in zip(now, self.spent, strict=True))
        self.spent = now
        speed = clients / seconds if seconds else 0.0
        return {"clients_per_second": speed, "train_seconds": seconds, "eval_seconds": measuring}

    # --- what stages ask of a run ---------------------------------------------------------------------------------

    def sampler(self, task: Task, own: Ragged | None = None) -> Sampler:
        """Return what draws examples from the users' training items, and negatives from the task's pool.

        `own`: what is learned from in the place of all of the task's training items.
        """
        e, catalogue = self.experiment, len(self.prepared.dataset.catalogue)
        positives = task.train if own is None else own
        return Sampler(positives, task.pool, catalogue, e.negatives, e.batch_size, e.seed, avoid=task.avoid)

    def together(self) -> Model:
        """The model that rounds learn together: shared tensors, and the private ones that rounds use.

        Those that a round makes anew are made of all that their clients have, as whoever recommends does.
        """
        f = self.federation
        used = {name for name in read_by(f.phases("round")) if not name.startswith(PREVIOUS)}
        shared = {name: value for name, value in f.shared.items() if not name.startswith(PREVIOUS)}
        shared = f.program.kept(f.seed, shared)
        private = {name: value for name, value in f.private.items() if name in used}
        return Model(shared, private | self._made_anew(shared), {**f.tables, **f.own})

    def _made_anew(self, shared: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return private tensors that nobody keeps after a round, as `shared` lets their clients make them now."""
        f, at = self.federation, self.position.stage
        names = [name for name, spec in f.program.specs.items() if spec.reset == "round" and name in f.private]
        federated = [stage.task for stage in self.schedule[: at + 1] if stage.federated]
        if not names or not federated:
            return {}
        task = federated[-1]
        clients, sampler = np.flatnonzero(task.train.counts), self.sampler(task)
        made = f.alone(clients, sampler, task.train, f.private, self.rounds, shared)
        return {name: made[name] for name in names}

    def personal(self, task: Task, model: Model, number: int) -> Model:
        """`model` after its clients' local training on a task's items, in which nothing leaves a device.

        `number` keys their draws, and the one before it which clients they are, where not all train.
        """
        f, context, clients = self.federation, joined(task.history, task.train), np.flatnonzero(task.train.counts)
        if self.experiment.local_training == "cohort":  # TransFR Algorithm 1, line 11
            clients = f.cohort(number - 1, clients, self.experiment.cohort_size(len(clients)))
        private = f.personalise(
            clients,
            self.sampler(task),
            context,
            f.private | model.private,
            number,
            model.shared,
        )
        return Model(model.shared, private, model.tables)

    def scorer(self, model: Model, task: Task, context: Ragged, program: LocalProgram | None = None) -> Scorer:
        """Return scores of a model for every item that exists in a task.

        `context`: what programs know of a user's past.

        `program`: that of the model, where it is not the one that is being trained.
        """
        f = self.federation
        tensors = program or f.program, model.shared, model.private
        pool, tables = task.pool.tolist(), model.tables
        known = TrainedModel(*tensors, self.names, task.train, history=context, pool=pool, tables=tables)
        return ModelScorer.of(known, f.device)

    def plain_program(self, present: int | None = None) -> LocalProgram:
        """The experiment's program as no strategy has changed it, on the federation's frozen tables.

        `present`: the items that learning rates count (None: all).
        """
        plain = build_program(self.experiment, self.prepared, present)
        plain.frozen.update(self.federation.program.frozen)
        return plain

    # --- what came out --------------------------------------------------------------------------------------------

    def tested(self) -> Tested:
        """Return users of the last task [n] and the test metrics of the model they end with, float64 [n] each."""
        on, stage = self.schedule[-1].task.name, self.stages[-1]
        return next(found for (*asked, _), found in self.measured.users.items() if asked == [stage, on])

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {
            "position": asdict(self.position),
            "federation": self.federation.state(),
            "participation": self.participation.state(),
            "measured": self.measured.state(),
            "keeping": self.keeping.state(),
            "best": None if self.best is None else self.best.flat(),
            "saved": self.saved,
            "done": self.done,
            "spent": self.spent,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of the same experiment (arrays in place of tensors)."""
        f = self.federation
        self.position = Position(**state["position"])
        f.restore(state["federation"])
        self.participation.restore(state["participation"])
        self.measured.restore(state["measured"])
        self.keeping.restore(state["keeping"], f.device)
        best = None if state["best"] is None else Model.of(state["best"], f.program, f.device)
        self.best = None if best is None else replace(best, private=f.backend.kept(best.private))
        self.saved = {name: torch.as_tensor(value) for name, value in state["saved"].items()}
        self.done, self.spent = state["done"], state["spent"]
