"""A stage of a run is rounds over one task: when they end, which model is kept, and what happens at its end."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.data.splits.task import Task
from edgefr.engine.model import Model
from edgefr.engine.work import Clients
from edgefr.fleet import FleetFile
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.loop import Training


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

    def turn(self, run: Training, number: int) -> tuple[Clients, Sampler | SessionSampler]:
        """Give who can be invited to the stage's round `number` (from 1), and the draws of their examples."""
        return np.flatnonzero(self.task.train.counts), run.sampler(self.task)

    def context(self, number: int) -> Ragged:
        """Give every client's own past positives in round `number`, for programs that need a history."""
        return self.task.train

    def unlearned(self, run: Training, model: Model) -> None:  # noqa: B027 - rounds alone are tested by later stages
        """Test the run's model as it is before round 1 on what the stage tests, as stage `measure.UNLEARNED`."""

    def begin(self, run: Training) -> None:  # noqa: B027 - most stages take nothing over
        """Make the federation ready for the stage, before its first round and again after a restart."""

    def work(self, run: Training, number: int) -> None:
        """Do the stage's round `number` (from 1): a federated one."""
        run.round(self, number)

    def first(self, run: Training) -> Model:
        """Give the model as it is before the stage's first round."""
        return run.together()

    def model(self, run: Training) -> Model:
        """Give the model as it now is, with all that its scores are made of; nothing is copied."""
        return run.together()

    @abstractmethod
    def validate(self, run: Training, model: Model) -> dict[str, float]:
        """Measure a point of the learning curve; returns its metrics on validation items."""

    def value(self, found: Mapping[str, float]) -> float:
        """Give what is compared between rounds, higher is better, from the metrics of `validate`."""
        return next(value for name, value in found.items() if name.startswith("NDCG"))

    def after_round(self, run: Training) -> None:  # noqa: B027 - most stages note nothing
        """Take note of a round that was just done, before it is measured."""

    @abstractmethod
    def end(self, run: Training, model: Model, progress: Progress | None) -> Model:
        """Measure the model that the stage ended with, and hand on; returns the model that its users then have."""

    def present(self) -> dict[str, Ragged]:
        """Give what devices know of their users' present, by name, beside the items of the task."""
        return {}

    def statistics(self) -> dict[str, Any]:
        """Give the counts of the stage's data for a report, where its protocol has some."""
        return {}
