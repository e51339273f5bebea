"""Does a run know a user's items? Its shared tensors are attacked before and after the user was unlearned.

The attacker knows everybody else's data and the settings, but no seed, and trains the same run without the user. It has
a newcomer with the user's items train own tensors under the attacked tensors and under its own: an item that the
attacked ones score higher than its own was there (a reference model, as in Carlini et al. 2022). Tensors that never had
the user score like any other seed's, so items are told apart with an AUC of one half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from edgefr.data.interactions import Dataset
from edgefr.engine.device import one_thread
from edgefr.simulation.retrain import again
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.served_tensors import ServedTensors
from edgefr.studies.audits.canaries import Floats, Ints
from edgefr.studies.audits.target import AttackTarget
from privacy.audits import auc, auc_interval
from privacy.errors import InputError
from privacy.progress import Progress

FITTED = 100
"""Rounds for which a newcomer trains."""


@dataclass(frozen=True)
class Told:
    """This says how well a user's `items` are told from `others` by shared tensors: AUC, and its 95 % interval."""

    auc: float
    low: float
    high: float
    items: int
    others: int

    def __str__(self) -> str:
        return f"{self.auc:.2f} [{self.low:.2f}, {self.high:.2f}]"


def told_apart(
    before: Run,
    after: Run,
    client: int,
    *,
    data: Dataset | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Told, Told]:
    """Attack a run's tensors for the items that its `client` trained on, and those of the run `after` it left.

    Trains the run `after` it once more, for the attacker. Raises `InputError` for runs that cannot be attacked so.
    """
    with TemporaryDirectory() as folder, one_thread():
        targets = [_opened(before), _opened(after)]
        reference = again(after, Path(folder) / "reference", data=data, data_dir=data_dir, progress=progress)
        known = AttackTarget.open(reference)
        first, held = targets[0], targets[0].model.held_out
        there = numbers(first, known)
        had = [first.own[client], np.zeros(0, np.int64) if held is None else held.items[held.users == client]]
        own, spared = (np.flatnonzero(np.isin(there, items)) for items in had)
        found = [attacked(target, known, own, spared) for target in targets]
    return found[0], found[1]


def _opened(run: Run) -> AttackTarget:
    """Return a run as attackers meet it, with the tensors that real devices left, if any."""
    target = AttackTarget.open(run)
    if target.unasked:
        raise InputError(f"not attacked: {target.unasked}")
    if run.lineage.tensors is None:
        return target
    shared = {n: v for n, v in ServedTensors.of(run).shared.items() if n in target.model.shared}
    return replace(target, model=replace(target.model, shared={**target.model.shared, **shared}))


def attacked(target: AttackTarget, reference: AttackTarget, own: Ints, spared: Ints) -> Told:
    """Attack a run for a newcomer's `own` items beside all others that are not `spared`; both as the reference numbers.

    Raises `InputError` where there are none of one of them.
    """
    there, every = numbers(target, reference), np.arange(len(reference.model.names.items))
    others = np.setdiff1d(every, np.concatenate([own, spared]))
    if not len(own) or not len(others):
        raise InputError("not attacked: the user trained on no item that others had, or on all of them")
    more = _standard(target.scores(there[own], FITTED)[there]) - _standard(reference.scores(own, FITTED))
    one, zero = more[own], more[others]
    return Told(auc(one, zero), *auc_interval(one, zero), len(one), len(zero))


def numbers(target: AttackTarget, reference: AttackTarget) -> Ints:
    """Return the numbers in `target` of the items of `reference`, all of which it has: int64 [items]."""
    names = [list(zip(t.model.names.items, t.model.names.titles, strict=True)) for t in (target, reference)]
    places, at = np.empty(len(names[1]), np.int64), 0
    for number, name in enumerate(names[1]):  # both are in the order of ids
        at = places[number] = names[0].index(name, at)
    return places


def _standard(scores: Floats) -> Floats:
    return (scores - scores.mean()) / max(float(scores.std()), math.ulp(1.0))
