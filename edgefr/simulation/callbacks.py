"""These are told of every round of a run when it is done: the learning curve first, then progress and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgefr.simulation.stages.stage import Stage
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running

Callback = Callable[["Running"], None]
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


def shown(progress: Progress) -> Callback:
    """Tell `progress` of every round: how fast clients work, and the newest point of the learning curve."""

    def show(run: Running) -> None:
        stage: Stage = run.stage
        counters = run.federation.counters
        speed = [f"{counters.clients / max(counters.seconds, 1e-9):,.0f} clients/s"] if stage.federated else []
        points = [f"validation {name} {value:.4f}" for name, value in list(run.curve.items())[:2]]
        progress(stage.label, run.position.round, stage.rounds, ", ".join([*speed, *points]))

    return show
