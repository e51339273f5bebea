"""A central reference is learned in stages: epochs over everybody's interactions in one place, then tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Split
from edgefr.engine.device import one_thread
from edgefr.engine.model import Model
from edgefr.experiment.experiment import Experiment
from edgefr.methods.central.references import Draws, Turn, turns
from edgefr.metrics.settings import EvaluationSection
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.measure import MeasurementPlace
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.stages.leave_one_out import Local, split_references
from edgefr.simulation.stages.stage import Stage
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running


def over_split(experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
    """Return a stage for each turn of a central reference: nothing is federated, nobody's data stay where they are."""
    draws = Draws(experiment.seed, experiment.batch_size, experiment.negatives)
    return tuple(
        Central(
            turn.over,
            turn.learner.epochs,
            patience=turn.learner.patience,
            learned_on=turn.over.name,
            of=turn,
            settings=experiment.evaluation,
        )
        for turn in turns(experiment.row, experiment.settings, draws, prepared)
    )


@dataclass(frozen=True)
class Central(Local):
    """These are epochs over one split; the best one by validation is kept, and tested as federated models are.

    Where nothing is known of a split's items, all are tied, and metrics are what is expected of that.
    `settings` say by which metric the best is told.
    """

    of: Turn = field(kw_only=True)
    settings: EvaluationSection = field(default_factory=EvaluationSection, kw_only=True)

    label = "epochs"
    keeps_best = True

    def begin(self, run: Running) -> None:
        if run.final is not None:
            self.of.learner.follow(run.final.shared, run.final.private)

    def work(self, run: Running, number: int) -> None:
        started = time.perf_counter()
        with one_thread():
            self.of.learner.epoch(number)
        run.federation.counters.seconds += time.perf_counter() - started

    def model(self, run: Running) -> Model:
        return Model(*self.of.learner.tensors())

    def first(self, run: Running) -> Model:
        return self.model(run)

    def unlearned(self, run: Running, model: Model) -> None:
        """Test nothing: where a reference starts from is no model of anybody's."""

    def value(self, found: Mapping[str, float]) -> float:
        return found[self.settings.judge]

    def validate(self, run: Running, model: Model) -> dict[str, float]:
        asked = MeasurementPlace(run.stages[self.of.model], self.task.name, run.position.round)
        return run.measured.candidates(asked, self.task, run.scorer(model, self.task, self.cold), "valid", full=False)

    def end(self, run: Running, model: Model, progress: Progress | None) -> Model:
        for split in (*self.of.also, self.task):
            self._tested(run, split, run.scorer(model, split, split.train))
        for split in self.of.unseen:
            self._tested(run, split, references.unknown(run.experiment.seed, split))
        return model

    def _tested(self, run: Running, split: Split, score: Scorer) -> None:
        """Test a model on a split; the first one there beside what needs no learning."""
        test = replace(self, task=split)._test
        test(run, MeasurementPlace(run.stages[self.of.model], self.learned_on), score)
        if self.of.model == 0:
            for name, other in split_references(split, run.prepared, run.experiment.seed).items():
                test(run, MeasurementPlace(name, split.name), other)
