"""A central reference is learned in one stage: epochs over everybody's interactions in one place, and the tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from cloud.references.reference import Reference
from edgefr.engine.federation import one_thread
from edgefr.experiment import Experiment
from edgefr.measure import Asked
from edgefr.model import Model
from edgefr.prepare import Prepared
from edgefr.sections import EvaluationSection
from edgefr.stages.leave_one_out import Local
from edgefr.stages.stage import Stage

if TYPE_CHECKING:
    from edgefr.training import Training


def over_split(experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
    """Return the one stage of a run of a central reference: nothing is federated, nobody's data stay where they are."""
    learner = experiment.row.learner(experiment, prepared)
    split, settings = prepared.train_split, experiment.evaluation
    central = Central(
        split, learner.epochs, patience=learner.patience, learned_on=split.name, learner=learner, settings=settings
    )
    return (central,)


@dataclass(frozen=True)
class Central(Local):
    """These are epochs over one split; the best one by validation is kept, and tested as federated models are.

    `settings` say by which metric it is told.
    """

    learner: Reference = field(kw_only=True)
    settings: EvaluationSection = field(default_factory=EvaluationSection, kw_only=True)

    label = "epochs"
    keeps_best = True
    compared: ClassVar[tuple[str, ...]] = ("popularity", "chance")

    def work(self, run: Training, number: int) -> None:
        started = time.perf_counter()
        with one_thread():
            self.learner.epoch(number)
        run.federation.counters.seconds += time.perf_counter() - started

    def model(self, run: Training) -> Model:
        return Model(*self.learner.tensors())

    def first(self, run: Training) -> Model:
        return self.model(run)

    def unlearned(self, run: Training, model: Model) -> None:
        """Test nothing: where a reference starts from is no model of anybody's."""

    def value(self, found: Mapping[str, float]) -> float:
        return found[self.settings.judge]

    def validate(self, run: Training, model: Model) -> dict[str, float]:
        asked = Asked(run.stages[0], self.task.name, run.position.round)
        return run.measured.candidates(asked, self.task, run.scorer(model, self.task, self.cold), "valid", full=False)
