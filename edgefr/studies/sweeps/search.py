"""A search runs at one point of the grid:

Optuna's sampler, asked in batches so that a kill or more workers change nothing.

Trial n is a function of (seed, point, n) and of the trials of earlier batches. Those are kept in `search.journal`, one
Optuna study per point; a batch is added to it when all of its runs have ended, and what was under way is asked again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config import random_streams as purposes
from edgefr.studies.sweeps.space import Range
from privacy import keyed
from privacy.errors import InputError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage

JOURNAL = "search.journal"
BATCH = 4
"""Trials that are asked for together: they do not know of each other, so that they can be run at the same time."""


@dataclass(frozen=True)
class Trial:
    """This is a choice: `number` from 0, `values` by field."""

    number: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Told:
    """This is a trial that has ended. `value`: of the objective, NaN where its run failed."""

    trial: Trial
    value: float


def available() -> None:
    """Raises `InputError` where Optuna is not installed."""
    try:
        import optuna
    except ImportError:
        raise InputError("--search needs optuna: pip install 'edgefr[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def opened(folder: Path) -> BaseStorage:
    """Open the journal of a sweep's folder. A line that a kill left half written is taken back, and so is its lock.

    Only one process may have it open: `run` holds the folder's lock.
    """
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

    Example: ``while batch := study.ask(): study.tell([Told(trial, objective(trial)) for trial in batch])``
    """

    def __init__(
        self, storage: BaseStorage, name: str, ranges: Sequence[Range], trials: int, seed: int, place: int
    ) -> None:
        import optuna

        self.trials, self._key = trials, (seed, place)
        self._space = {r.field: _distribution(r) for r in ranges}
        try:
            self._study = optuna.load_study(storage=storage, study_name=name)
        except KeyError:  # asked first, since creating writes even where there is one
            self._study = optuna.create_study(storage=storage, study_name=name, direction="maximize")

    def widen(self, ranges: Sequence[Range]) -> None:
        """Choose, and keep, further trials from these ranges of the same fields."""
        self._space = {r.field: _distribution(r) for r in ranges}

    @property
    def told(self) -> list[Told]:
        """Return all trials that have ended, in their order."""
        found = self._study.get_trials(deepcopy=False)
        return [
            Told(Trial(n, dict(t.params)), math.nan if t.value is None else float(t.value)) for n, t in enumerate(found)
        ]

    def ask(self) -> list[Trial]:
        """Return the trials of the current batch that nothing is known of yet; none when the search is over."""
        known = self._study.get_trials(deepcopy=False)
        first = len(known) - len(known) % BATCH
        numbers = range(len(known), min(first + BATCH, self.trials))
        return [self._choose(number, known[:first]) for number in numbers]

    def _choose(self, number: int, known: Sequence[Any]) -> Trial:
        import optuna

        seed, place = self._key
        sampler = _sampler(keyed.key(seed, purposes.SWEEP_SEARCH, place, number) % 2**32)
        blank = optuna.create_study(direction="maximize", sampler=sampler)
        blank.add_trials(known)
        return Trial(number, dict(blank.ask(self._space).params))

    def tell(self, ended: Sequence[Told]) -> None:
        """Keep what came of a batch; a value that is not finite counts as a failure, which the sampler leaves out."""
        from optuna.trial import TrialState, create_trial

        for told in sorted(ended, key=lambda one: one.trial.number):
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
    def best(self) -> Told | None:
        """Return the trial with the highest value, the first of equals; None where all failed."""
        fine = [told for told in self.told if math.isfinite(told.value)]
        return max(fine, key=lambda told: (told.value, -told.trial.number), default=None)


def _sampler(seed: int) -> Any:
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed)


def _distribution(r: Range) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    if r.scale == "int":
        return IntDistribution(*r.ends)
    return FloatDistribution(r.low, r.high, log=r.scale == "log")
