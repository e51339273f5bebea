"""A search at one point of the grid asks Optuna's sampler in batches, so that a kill or more workers change nothing.

Trial n is a function of (seed, point, n) and of the trials of earlier batches. Those are kept in `search.journal`, one
Optuna study per point; a batch is added to it when all of its runs have ended, and what was under way is asked again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config import random_streams as purposes
from edgefr.studies.campaign import digest
from edgefr.studies.sweeps.grid import Range, canonical
from privacy import keyed
from privacy.errors import InputError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage

JOURNAL = "search.journal"
BATCH = 4
"""Trials that are asked for together: they do not know of each other, so that they can be run at the same time."""

AT_RANDOM = 10
"""Trials that are drawn without regard to each other where a search has no first ones."""


@dataclass(frozen=True)
class Trial:
    """This is a choice: `number` from 0, `values` by field."""

    number: int
    values: dict[str, Any]

    @property
    def folder(self) -> str:
        """Return the name of its folder, which a digest of the values keeps apart from other choices."""
        return f"trial-{self.number:03d}-{digest(canonical(self.values))[:8]}"


@dataclass(frozen=True)
class EndedTrial:
    """This is a trial that has ended. `value`: of the objective, NaN where its run failed."""

    trial: Trial
    value: float


def available() -> None:
    """Raises `InputError` where Optuna is not installed."""
    try:
        import optuna
    except ImportError:
        raise InputError("a search needs optuna: pip install 'edgefr[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_journal(folder: Path) -> BaseStorage:
    """Open a folder's journal, which its holder alone may; a half-written line and a lock of a kill are taken back."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = folder / JOURNAL
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, LookupError, OSError) as error:
        raise InputError(f"cannot read {path}: {error}; run the sweep again with another --out") from None


class Study:
    """This is the search at one point. `place` is the point's number in the grid, which its random numbers depend on.

    `first`: values of the first trials, after which the sampler knows enough to choose.

    Example: ``while batch := study.ask(): study.tell([EndedTrial(trial, objective(trial)) for trial in batch])``
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        ranges: Sequence[Range],
        trials: int,
        seed: int,
        place: int,
        first: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        import optuna

        self.trials, self._key, self._first = trials, (seed, place), first
        self._space = {r.field: _distribution(r) for r in ranges}
        try:
            self._study = optuna.load_study(storage=storage, study_name=name)
        except KeyError:  # asked first, since creating writes even where there is one
            self._study = optuna.create_study(storage=storage, study_name=name, direction="maximize")

    def widen(self, ranges: Sequence[Range]) -> None:
        """Choose, and keep, further trials from these ranges of the same fields."""
        self._space = {r.field: _distribution(r) for r in ranges}

    @property
    def ended(self) -> list[EndedTrial]:
        """Return all trials that have ended, in their order."""
        found = self._study.get_trials(deepcopy=False)
        return [
            EndedTrial(Trial(n, dict(t.params)), math.nan if t.value is None else float(t.value))
            for n, t in enumerate(found)
        ]

    def ask(self) -> list[Trial]:
        """Return the trials of the current batch that nothing is known of yet; none when the search is over."""
        known = self._study.get_trials(deepcopy=False)
        first = len(known) - len(known) % BATCH
        numbers = range(len(known), min(first + BATCH, self.trials))
        return [self._choose(number, known[:first]) for number in numbers]

    def _choose(self, number: int, known: Sequence[Any]) -> Trial:
        import optuna

        if number < len(self._first):
            return Trial(number, dict(self._first[number]))
        seed, place = self._key
        alone = len(self._first) or AT_RANDOM
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=alone, seed=keyed.key(seed, purposes.SWEEP_SEARCH, place, number) % 2**32
        )
        blank = optuna.create_study(direction="maximize", sampler=sampler)
        blank.add_trials(known)
        return Trial(number, dict(blank.ask(self._space).params))

    def tell(self, batch: Sequence[EndedTrial]) -> None:
        """Keep what came of a batch; a value that is not finite counts as a failure, which the sampler leaves out."""
        from optuna.trial import TrialState, create_trial

        for told in sorted(batch, key=lambda one: one.trial.number):
            fine = math.isfinite(told.value)
            self._study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE if fine else TrialState.FAIL,
                    value=told.value if fine else None,
                    params=told.trial.values,
                    distributions=self._space,
                )
            )

    @property
    def best(self) -> EndedTrial | None:
        """Return the best of the trials that have ended."""
        return best_of(self.ended)


def best_of(ended: Sequence[EndedTrial]) -> EndedTrial | None:
    """Return the trial with the highest value, the first of equals; None where all failed."""
    fine = [one for one in ended if math.isfinite(one.value)]
    return max(fine, key=lambda one: (one.value, -one.trial.number), default=None)


def _distribution(r: Range) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    return IntDistribution(*r.ends) if r.scale == "int" else FloatDistribution(r.low, r.high, log=r.scale == "log")
