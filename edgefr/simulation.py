"""A simulation: one experiment's server, clients, fleet and measurements, from the first broadcast to the last stage.

Owns: the order of the stages. Does not own: what any of them does (engine, fleet, metrics), files (`edgefr.run`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.cohorts import Cohorts, Log
from edgefr.data.protocols import Split
from edgefr.engine import debug, inline
from edgefr.engine.crew import Alone, Crew
from edgefr.engine.examples import DPSGD, plan_for, start_up_probe
from edgefr.engine.federation import Federation
from edgefr.engine.processes import Workers
from edgefr.engine.release import released_values, restricted
from edgefr.engine.tables import Own
from edgefr.engine.work import Clients, Executor
from edgefr.experiment import EngineSection, Experiment
from edgefr.fleet import Fleet, FleetFile
from edgefr.measure import Measurements, joined, reference_scorers
from edgefr.methods import Method
from edgefr.methods.program import LocalProgram
from edgefr.prepare import Prepared, Progress
from privacy.errors import InputError
from privacy.example_plan import ExamplePlan
from privacy.plan import plan

if TYPE_CHECKING:
    from edgefr.methods.transfr.bert import Reader

EXECUTORS: dict[str, Executor] = {"inline": inline.run, "debug": debug.run}

Boundary = Callable[[int], None]
"""Called at the end of every round with the number of rounds done: where a checkpoint may be taken."""


def build_program(experiment: Experiment, prepared: Prepared) -> LocalProgram:
    """The experiment's local program on the prepared catalogue."""
    row = experiment.row
    text = None if prepared.text is None else torch.from_numpy(prepared.text.vectors)
    items = len(prepared.dataset.catalogue.ids)
    reader = None if prepared.text is None else partial(read_on_device, experiment, prepared)
    made = row.build(row.settings.model_validate(experiment.model), items, text, experiment.local_epochs, reader)
    return restricted(made, experiment.privacy.tensors)


def read_on_device(experiment: Experiment, prepared: Prepared) -> Reader:
    """Titles and encoder for clients that read for themselves."""
    from edgefr.methods.transfr.bert import Reader

    assert prepared.text is not None
    how = experiment.encoder.encode
    return Reader.open(prepared.text.folder, prepared.dataset.catalogue.text, how.pooling, how.max_tokens)


def crew_of(engine: EngineSection, examples: ExamplePlan | None = None) -> Crew:
    """Who runs the shards of a run: with DP-SGD on the device, always this process, client after client."""
    if examples is not None:
        return Alone(DPSGD(examples.clip, examples.sigma))
    return Workers(engine.workers) if engine.executor == "processes" else Alone(EXECUTORS[engine.executor])


def federate(
    experiment: Experiment, prepared: Prepared, devices: FleetFile, population: int, rounds: int, device: torch.device
) -> Federation:
    """The server and its clients before round 1; privacy is planned for `rounds` rounds of a `population`.

    That holds for asynchronous rounds too: a client uploads once per round at most, an old update weighs no more than
    a new one, and the broadcast it started from was public before.
    """
    assert experiment.engine.shard_size is not None
    cohort = min(devices.rounds.buffer or experiment.cohort_size(population), population)
    program = build_program(experiment, prepared)
    if devices.rounds.policy == "async" and (experiment.privacy.project or experiment.privacy.step):
        field = "project" if experiment.privacy.project else "sampler"
        raise InputError(f"privacy.{field} needs rounds whose updates all weigh alike: use another policy than async")
    examples = plan_for(experiment.privacy, program, rounds)
    if examples is not None:
        start_up_probe(program, experiment.seed, experiment.negatives, torch.device("cpu"))
    return Federation(
        program,
        clients=len(prepared.dataset.users),
        seed=experiment.seed,
        crew=crew_of(experiment.engine, examples),
        shard_size=experiment.engine.shard_size,
        aggregation=experiment.aggregation,
        plan=plan(
            experiment.privacy,
            max(rounds, 1),
            cohort,
            population,
            experiment.aggregation.weights,
            released_values(program, experiment.privacy.project),
            prototypes=experiment.prototypes,
        ),
        device=device,
    )


@dataclass
class Simulation:
    """State of a running experiment. `round` rounds are done. `personal` are all clients' private tensors after local
    training, by split."""

    experiment: Experiment
    prepared: Prepared
    federation: Federation
    cohorts: Cohorts
    measured: Measurements
    population: Clients
    round: int = 0
    personal: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def start(
        cls, experiment: Experiment, prepared: Prepared, devices: FleetFile, device: torch.device, log: Log
    ) -> Simulation:
        """Everything as it is before round 1. `experiment.engine.shard_size` must be set; `log` takes the events."""
        split = prepared.train_split
        population = np.flatnonzero(split.train.counts)
        federation = federate(experiment, prepared, devices, len(population), experiment.rounds, device)
        fleet = Fleet(devices, prepared.dataset.offsets[1:] - prepared.dataset.offsets[:-1], experiment.seed)
        cohorts = Cohorts(experiment, federation, fleet, log)
        measured = Measurements(experiment.evaluation, experiment.seed, len(prepared.dataset.catalogue.ids), device)
        return cls(experiment, prepared, federation, cohorts, measured, population)

    @property
    def fleet(self) -> Fleet:
        """The devices and their clock."""
        return self.cohorts.fleet

    @property
    def row(self) -> Method:
        """The method's row of the table."""
        return self.experiment.row

    def sampler(self, split: Split) -> Sampler:
        """Draws examples from a split's training items."""
        e, catalogue = self.experiment, len(self.prepared.dataset.catalogue.ids)
        return Sampler(split.train, split.pool, catalogue, e.negatives, e.batch_size, e.seed)

    def train(self, progress: Progress | None = None, boundary: Boundary | None = None) -> None:
        """The federated rounds that are left, with a point of the learning curve every `evaluation.every` rounds."""
        split = self.prepared.train_split
        sampler = self.sampler(split)
        note = ""
        while self.round < self.experiment.rounds:
            self.round += 1
            contributors = self.cohorts.meet(self.round, self.population, sampler)
            if len(contributors):
                self.federation.round(self.round, contributors, sampler, split.train)
            if self.round % self.experiment.evaluation.every == 0 or self.round == self.experiment.rounds:
                together = self._together(split)
                found = self.measured.add(self.row.stages[0], split, together, "valid", self.round, full=False)
                name, value = next(iter(found.items()))
                note = f", validation {name} {value:.4f}"
            if progress is not None:
                speed = self.federation.counters.clients / max(self.federation.counters.seconds, 1e-9)
                progress("rounds", self.round, self.experiment.rounds, f"{speed:,.0f} clients/s{note}")
            if boundary is not None:
                boundary(self.round)
        self.cohorts.adjourn()

    @property
    def clients(self) -> Clients:
        """Everybody who can be invited."""
        return self.population

    def tested(self) -> tuple[Clients, dict[str, npt.NDArray[np.float64]]]:
        """Users of the last split [n] and the final model's test metrics, float64 [n] each."""
        split = list(self.prepared.splits.values())[-1]
        return self.measured.tested(split, self.row.stages[1] or self.row.stages[0])

    def shipped(self) -> tuple[Ragged, Ragged, npt.NDArray[np.integer], dict[str, Tensor], dict[str, Tensor]]:
        """What bundles are made of: history, own items and pool of the last split; shared and private tensors."""
        split = list(self.prepared.splits.values())[-1]
        used = {name for phase in self.federation.phases("round") for name in phase.uses}
        private = self.personal.get(split.name) or {n: v for n, v in self.federation.private.items() if n in used}
        return split.history, split.train, split.pool, self.federation.shared, private

    @property
    def tables(self) -> dict[str, Own]:
        """The clients' own item rows that the model has."""
        return self.federation.tables

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        measured = {"rows": self.measured.rows, "seconds": self.measured.seconds}
        return {
            "round": self.round,
            "federation": self.federation.state(),
            "cohorts": self.cohorts.state(),
            "measured": measured,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of the same experiment."""
        self.round = state["round"]
        self.federation.restore(state["federation"])
        self.cohorts.restore(state["cohorts"])
        self.measured.rows, self.measured.seconds = state["measured"]["rows"], state["measured"]["seconds"]

    def _together(self, split: Split, context: Ragged | None = None) -> Any:
        """Scorer of the model that was learned together: shared tensors and private ones of the rounds."""
        used = {name for phase in self.federation.phases("round") for name in phase.uses}
        private = {name: value for name, value in self.federation.private.items() if name in used}
        return self._score(split, private, split.train if context is None else context)

    def _score(self, split: Split, private: dict[str, Tensor], context: Ragged) -> Any:
        f = self.federation
        return self.measured.scorer(f.program, f.shared, private, context, split, f.tables)

    def finish(self, progress: Progress | None = None) -> None:
        """Local training and every stage's metrics, on every split of the protocol; references beside them."""
        splits = list(self.prepared.splits.values())
        for number, split in enumerate(splits):
            if progress is not None:
                progress("measure", number, len(splits), split.name)
            self._untrained(split)
            cold = split.history if split.name == "target" else split.train
            self._final(self.row.stages[0], split, self._together(split, cold))
            if self.row.stages[1] is not None:
                context = joined(split.history, split.train)
                self.personal[split.name] = self.federation.personalise(
                    np.flatnonzero(split.train.counts),
                    self.sampler(split),
                    context,
                    self.federation.private,
                    self.experiment.rounds + 1 + number,
                )
                self._final(self.row.stages[1], split, self._score(split, self.personal[split.name], context))
            for name, score in reference_scorers(split, self.prepared.text, self.experiment.seed).items():
                self._final(name, split, score)
            if progress is not None:
                progress("measure", number + 1, len(splits), split.name)

    def _final(self, stage: str, split: Split, score: Any) -> None:
        self.measured.add(stage, split, score, "valid", None, full=False)
        self.measured.add(stage, split, score, "test", None)

    def _untrained(self, split: Split) -> None:
        if self.row.untrained is None or self.prepared.text is None:
            return
        text = self.prepared.text
        settings = self.row.settings.model_validate(self.experiment.model)
        blank = None if text.untrained is None else torch.from_numpy(text.untrained)
        stages = self.row.untrained(settings, torch.from_numpy(text.vectors), blank, self.experiment.seed)
        context = split.history if split.name == "target" else split.train
        for name, program, shared in stages:
            self._final(name, split, self.measured.scorer(program, shared, {}, context, split))
