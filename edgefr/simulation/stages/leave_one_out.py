"""Leave-one-out, within a domain and across two, is a stage of rounds, then local training and tests on every split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch

from edge.ragged import Ragged, joined
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Split, Task, Which
from edgefr.engine.model import Model
from edgefr.engine.work import Clients
from edgefr.metrics.settings import CEILINGS, CONTEXT, UNLEARNED, UNLEARNED_IN_CONTEXT
from edgefr.simulation.encoders.words import tfidf_vectors
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ceilings import ceilings
from edgefr.simulation.evaluation.hybrid import hybrid
from edgefr.simulation.evaluation.measure import MeasurementPlace
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.stages.stage import Stage
from export.given import Given
from export.program import SessionProgram
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running

TEXTS = tuple(f"{name}{known}" for name in ("TF-IDF mean", "text mean", "hybrid") for known in ("", ", cold"))


@dataclass(frozen=True)
class Rounds(Stage):
    """Federated rounds over one split; the best by `judge` on validation items is tested (None: the last)."""

    task: Split
    judge: str | None = field(default=None, kw_only=True)

    latest_of_equals = True

    @property
    def keeps_best(self) -> bool:  # type: ignore[override]
        return self.judge is not None

    def value(self, found: Mapping[str, float]) -> float:
        assert self.judge is not None
        return found[self.judge]

    def turn(self, run: Running, number: int) -> tuple[Clients, Sampler | SessionSampler]:
        if run.row.reads != "sequence":
            return super().turn(run, number)
        return np.flatnonzero(self.task.train.counts > 1), whole_sequences(run, self.task)

    def validate(self, run: Running, model: Model) -> dict[str, float]:
        asked = MeasurementPlace(run.stages[0], self.task.name, run.position.round)
        score = run.scorer(model, self.task, self.task.train)
        return run.measured.candidates(asked, self.task, score, "valid", full=False)

    def end(self, run: Running, model: Model, progress: Progress | None) -> Model:
        return model


def whole_sequences(run: Running, task: Split) -> SessionSampler:
    """Return what draws examples from all that a user has to learn from, in its order, as one session."""
    program, e = cast(SessionProgram, run.federation.program), run.experiment
    train, users = task.train, np.arange(len(task.train))
    unknown = Ragged(np.zeros(len(train.values), np.int64), train.offsets)  # times, of which there may be none
    catalogue = len(run.prepared.dataset.catalogue)
    drawn = (e.drawn_negatives, e.seed)
    never = train if task.avoid is None else joined(train, task.avoid)  # no negatives of a user's
    return SessionSampler(train, unknown, users, never, task.drawn, catalogue, program.window, *drawn)


@dataclass(frozen=True)
class Local(Stage):
    """Local training on one split, without rounds, and the tests of what was learned before and by it.

    `number` of `splits`, from 0. `learned_on`: the split whose rounds made the model.
    """

    task: Split
    number: int = 0
    splits: int = 1
    learned_on: str = "main"

    federated = False
    compared: ClassVar[tuple[str, ...]] = (
        *(UNLEARNED, UNLEARNED_IN_CONTEXT, "popularity", "chance"),
        *TEXTS,
        *CEILINGS,
    )

    def model(self, run: Running) -> Model:
        return run.together() if run.best is None else run.best

    def validate(self, run: Running, model: Model) -> dict[str, float]:
        """Measure nothing: a stage without rounds has no learning curve."""
        return {}

    def unlearned(self, run: Running, model: Model) -> None:
        self._test(run, MeasurementPlace(UNLEARNED, self.task.name), *self._cold_scorers(run, model))
        if self._meets_context(run):
            self._test(
                run, MeasurementPlace(UNLEARNED_IN_CONTEXT, self.task.name), *self._scorers(run, model, self.known)
            )

    def end(self, run: Running, model: Model, progress: Progress | None) -> Model:
        if progress is not None:
            progress("measure", self.number, self.splits, self.task.name)
        self._untrained(run)
        self._test(run, MeasurementPlace(run.stages[0], self.learned_on), *self._cold_scorers(run, model))
        if self._meets_context(run):
            self._test(run, MeasurementPlace(CONTEXT, self.task.name), *self._scorers(run, model, self.known))
        if len(run.stages) > 1:
            model = run.personal(self.task, model, self.before + 1 + self.number)
            self._test(run, MeasurementPlace(run.stages[1], self.task.name), *self._scorers(run, model, self.known))
        for name, score in self.references(run, "test").items():
            self._test(run, MeasurementPlace(name, self.task.name), score)
        if progress is not None:
            progress("measure", self.number + 1, self.splits, self.task.name)
        return model

    @property
    def cold(self) -> Ragged:
        """Return what is known of users before they train on the split: in another domain their items of the first."""
        return self.task.history if self.elsewhere else self.task.train

    @property
    def known(self) -> Ragged:
        """Return what is known of users once they have items of the split."""
        return joined(self.task.history, self.task.train)

    def _meets_context(self, run: Running) -> bool:
        """Say whether users' items of the split change what is recommended before anything is trained on them."""
        return self.elsewhere and run.federation.program.needs_history and not self._unknown(run)

    def _unknown(self, run: Running) -> bool:
        """Say whether what rounds learned knows no item of the split: their rows are those of items never met."""
        by_number = any(spec.kind == "rows" for spec in run.federation.program.specs.values())
        return self.elsewhere and by_number and not run.row.needs_text

    @property
    def elsewhere(self) -> bool:
        """Say whether the rounds were over another split."""
        return self.task.name != self.learned_on

    def references(self, run: Running, which: Which) -> dict[str, Scorer]:
        return split_references(self.task, run.prepared, run.experiment.seed, cold=self.elsewhere)

    def _cold_scorers(self, run: Running, model: Model) -> tuple[Scorer, Scorer]:
        """Return scores, as `_scorers` does, of users of whom nothing in the split is known."""
        if self._unknown(run):
            tied = references.unknown(run.experiment.seed, self.task)
            return tied, tied
        return self._scorers(run, model, self.cold)

    def _scorers(self, run: Running, model: Model, known: Ragged) -> tuple[Scorer, Scorer]:
        """Return scores for validation and for test items: who reads an order has had what validates by then."""
        before = run.scorer(model, self.task, known)
        if not run.row.in_order:
            return before, before
        return before, run.scorer(model, self.task, joined(known, self.task.lists("valid")))

    def _test(self, run: Running, asked: MeasurementPlace, score: Scorer, later: Scorer | None = None) -> None:
        """Measure on validation and test items; `later`: scores for the latter, where they differ."""
        run.measured.candidates(asked, self.task, score, "valid", full=False)
        run.measured.candidates(asked, self.task, score if later is None else later, "test")

    def _untrained(self, run: Running) -> None:
        for name, score in untrained(run, self.task, self.cold).items():
            self._test(run, MeasurementPlace(name, self.task.name), score)


def untrained(run: Running, task: Task, context: Ragged) -> Mapping[str, Scorer]:
    """Scores of a method's model before anything is learned, by the name of the ablation's stage."""
    row, text = run.row, run.prepared.text
    if not row.ablation or text is None:
        return {}
    settings = row.settings.model_validate(run.experiment.model)
    blank = None if text.untrained is None else torch.from_numpy(text.untrained)
    vectors, source = torch.from_numpy(text.vectors), torch.from_numpy(run.prepared.source_items)
    stages = row.untrained(settings, Given(len(vectors), 1, vectors, source=source), blank, run.experiment.seed)
    return {name: run.scorer(Model(shared, {}), task, context, program) for name, program, shared in stages}


def split_references(
    task: Task, prepared: Prepared, seed: int, *, cold: bool = False, clock: bool = True, known: Ragged | None = None
) -> dict[str, Scorer]:
    """Return references that need no learning, also a cold start's, and the central ceilings.

    Popularity and text means know what a cold start may not. `clock`: a hybrid may read the times of the training
    items. `known`: what ceilings know of the users who are asked about (None: their training items).
    """
    out = {} if _cold(task) else {"popularity": references.popularity_of(task.train, task.pool)}
    out["chance"] = references.random(seed, task)
    out |= text_references(task, prepared, cold=cold, clock=clock)
    return out | ceilings(task, task.train, task.train if known is None else known)


def text_references(task: Task, prepared: Prepared, *, cold: bool = False, clock: bool = True) -> dict[str, Scorer]:
    """Return the text means of TF-IDF and of the run's own reader, and their hybrid; nothing of data without texts."""
    texts = prepared.dataset.catalogue.text
    words = tfidf_vectors(texts) if any(texts) else None
    own = None if prepared.text is None else prepared.text.vectors
    readers = {"TF-IDF mean": words, "text mean": own}
    out: dict[str, Scorer] = {}
    for known in ("", ", cold") if cold else ("",):
        means = {
            f"{name}{known}": references.text_mean(vectors, task, train=not known)
            for name, vectors in readers.items()
            if vectors is not None
        }
        out |= means
        if means and not _cold(task):
            out[f"hybrid{known}"] = hybrid(list(means.values()), task, prepared.dataset if clock else None)
    return out


def _cold(task: Task) -> bool:
    """Say whether nobody has trained on any item that is ranked: counts would tie all, and say nothing."""
    return isinstance(task, Split) and task.cold
