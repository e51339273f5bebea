"""A stage of a run is rounds over one task: when they end, which model is kept, and what happens at its end."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from edge.ragged import Ragged, joined
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Task
from edgefr.engine.attacks.attackers import Attackers
from edgefr.engine.federation import Federation
from edgefr.engine.model import Model
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import Clients
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import Method
from edgefr.fleet import Fleet, FleetFile
from edgefr.methods.f3crec.block_strategy import Keeping
from edgefr.methods.regularised import PREVIOUS
from edgefr.simulation.evaluation.measure import Measurements, Tested
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.participation import Participants, Participation
from edgefr.simulation.program import build_program
from export.model import Names, TrainedModel
from export.program import LocalProgram, read_by
from privacy.example_plan import ExamplePlan
from privacy.progress import Progress


@dataclass
class Position:
    """This says where a run is: `round` rounds of stage `stage` are done.

    `best` is the best validation so far, in `best_round`.

    `begun`: what the stage before handed on has been taken over.
    """

    stage: int = 0
    round: int = 0
    begun: bool = False
    best: float = -math.inf
    best_round: int = 0


@dataclass(frozen=True)
class Stage(ABC):
    """These are rounds over one task; each protocol has its own kind, which overrides what differs.

    `rounds`: at most so many. `before`: the rounds that earlier stages may take, so that no two rounds of a run share a
    number. `patience`: rounds without a better validation after which the stage ends.
    """

    task: Task
    rounds: int
    before: int = 0
    patience: float = math.inf

    label = "rounds"
    """What progress calls the stage."""
    keeps_best = False
    """Whether the stage ends with its best round's model; else with its last."""
    latest_of_equals = False
    """Whether of rounds that validate alike the latest counts as best; else the first."""
    compared: ClassVar[tuple[str, ...]] = ()
    """The references beside the stage's models, by the names under which they are measured."""
    federated = True
    """Whether the stage has rounds in which updates leave devices."""

    def check(self, devices: FleetFile) -> None:  # noqa: B027 - most stages suit every fleet
        """Refuse, by `InputError`, a fleet whose rounds do not suit the stage."""

    def over(self, at: Position) -> bool:
        """Tell whether no round follows: all are done, or validation has not been better for too long."""
        return at.round >= self.rounds or at.round - at.best_round >= self.patience

    def turn(self, run: Running, number: int) -> tuple[Clients, Sampler | SessionSampler]:
        """Give who can be invited to the stage's round `number` (from 1), and the draws of their examples."""
        return np.flatnonzero(self.task.train.counts), run.sampler(self.task)

    def context(self, number: int) -> Ragged:
        """Give every client's own past positives in round `number`, for programs that need a history."""
        return self.task.train

    def unlearned(self, run: Running, model: Model) -> None:  # noqa: B027 - rounds alone are tested by later stages
        """Test the run's model as it is before round 1 on what the stage tests, as stage `measure.UNLEARNED`."""

    def begin(self, run: Running) -> None:  # noqa: B027 - most stages take nothing over
        """Make the federation ready for the stage, before its first round and again after a restart."""

    def work(self, run: Running, number: int) -> None:
        """Do the stage's round `number` (from 1): a federated one."""
        run.round(self, number)

    def first(self, run: Running) -> Model:
        """Give the model as it is before the stage's first round."""
        return run.together()

    def model(self, run: Running) -> Model:
        """Give the model as it now is, with all that its scores are made of; nothing is copied."""
        return run.together()

    @abstractmethod
    def validate(self, run: Running, model: Model) -> dict[str, float]:
        """Measure a point of the learning curve; returns its metrics on validation items."""

    def value(self, found: Mapping[str, float]) -> float:
        """Give what is compared between rounds, higher is better, from the metrics of `validate`."""
        return next(value for name, value in found.items() if name.startswith("NDCG"))

    def after_round(self, run: Running) -> None:  # noqa: B027 - most stages note nothing
        """Take note of a round that was just done, before it is measured."""

    @abstractmethod
    def end(self, run: Running, model: Model, progress: Progress | None) -> Model:
        """Measure the model that the stage ended with, and hand on; returns the model that its users then have."""

    def present(self) -> dict[str, Ragged]:
        """Give what devices know of their users' present, by name, beside the items of the task."""
        return {}

    def statistics(self) -> dict[str, Any]:
        """Give the counts of the stage's data for a report, where its protocol has some."""
        return {}


@dataclass
class Running:
    """This is a running experiment, as its stages see it.

    `best` is the model of the stage's best round (None: none was measured yet; until it is handed on, that of the stage
    before), `final` the one that the last finished stage left its users with. `done` has a record of each finished
    stage; `saved` the tensors that `evaluation.keep_blocks` asks for, by `block<t>.<name>`; `spent` the seconds of
    training, client updates and seconds of measuring before this stage; `curve` is the learning curve's newest point.
    `examples` is the plan of DP-SGD on the device (None: plain steps). `attackers`: clients that are hostile.
    """

    experiment: Experiment
    prepared: Prepared
    federation: Federation
    participation: Participants
    measured: Measurements
    schedule: tuple[Stage, ...]
    keeping: Keeping
    examples: ExamplePlan | None = None
    attackers: Attackers | None = None
    position: Position = field(default_factory=Position)
    best: Model | None = None
    final: Model | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    saved: dict[str, Tensor] = field(default_factory=dict)
    spent: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    curve: dict[str, float] = field(default_factory=dict)

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

    def round(self, stage: Stage, number: int) -> None:
        """Run one federated round: who takes part, what they learn, the server's step."""
        population, sampler = stage.turn(self, number)
        if not len(population):
            return
        contributors = self.participation.meet(stage.before + number, population, sampler)
        if len(contributors):
            context = stage.context(number) if self.federation.program.needs_history else stage.task.train
            if self.attackers is not None:
                contributors = self.attackers.apart(contributors, stage.before + number, self.federation.shared)
            self.federation.round(stage.before + number, contributors, sampler, context)

    def sampler(self, task: Task, own: Ragged | None = None) -> Sampler:
        """Return what draws examples from the users' training items, and negatives from the items there are.

        `own`: what is learned from in the place of all of the task's training items.
        """
        e, catalogue = self.experiment, len(self.prepared.dataset.catalogue)
        positives = task.train if own is None else own
        return Sampler(positives, task.drawn, catalogue, e.negatives, e.batch_size, e.seed, avoid=task.avoid)

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
            **({} if self.attackers is None else {"attackers": self.attackers.state()}),
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
        if self.attackers is not None:
            self.attackers.restore(state["attackers"])
        self.best = None if state["best"] is None else Model.of(state["best"], f.program, f.device)
        self.saved = {name: torch.as_tensor(value) for name, value in state["saved"].items()}
        self.done, self.spent = state["done"], state["spent"]
