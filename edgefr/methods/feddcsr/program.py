"""FedDCSR learns in two domains, each with the sequences of all its users, which share an encoder by a server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloud.references.feddcsr import FedDCSR, How, Sequences
from cloud.references.folds import drawn_folds
from cloud.references.pooling import Ints, Pooled
from edge.ragged import Ragged
from edge.sessions import windows
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Split
from edgefr.methods.central.references import CentralProgram, Draws, Turn
from edgefr.methods.feddcsr.settings import FedDCSRSettings
from export.given import Given


def feddcsr_program(settings: FedDCSRSettings, given: Given) -> CentralProgram:
    return CentralProgram("feddcsr", given.items, _width(settings))


def _width(settings: FedDCSRSettings) -> int:
    return settings.folds * 2 * (settings.dim + 1)


def feddcsr_learner(settings: FedDCSRSettings, draws: Draws, prepared: Prepared) -> tuple[Turn, ...]:
    """Return the turns: models for each fold of cold users, then those that know what everybody has in the target."""
    s, (source, target) = settings, prepared.splits.values()
    users = len(prepared.dataset.users)
    fold, nobody = drawn_folds(draws.seed, users, s.folds), np.zeros(users, bool)

    def of(split: Split, left_out: np.ndarray) -> Sequences:
        return sequences(split, left_out, s.length, len(prepared.dataset.catalogue), draws.seed)

    first = of(source, nobody)
    how = How(
        dim=s.dim,
        scale=s.init_scale,
        lr=s.lr,
        size=draws.batch_size,
        negatives=draws.negatives,
        apart=s.apart,
        exclusive=s.exclusive,
        contrast=s.contrast,
        margin=s.margin,
        temperature=s.temperature,
        annealing=s.annealing,
    )
    limits, width = (s.epochs, s.patience), _width(s)
    cold = FedDCSR([(first, of(target, fold == number)) for number in range(s.folds)], fold, width, how, limits)
    warm = FedDCSR([(first, of(target, nobody))], np.zeros_like(fold), width, how, limits)
    return Turn(cold, target, also=(source,)), Turn(warm, target, also=(source,), model=1)


def sequences(split: Split, left_out: np.ndarray, length: int, items: int, seed: int) -> Sequences:
    counts = np.where(left_out, 0, split.train.counts)
    kept = ~left_out[split.train.rows]
    train = Ragged(split.train.values[kept].astype("int64"), np.concatenate([[0], np.cumsum(counts)]))
    pooled = Pooled(train.rows, train.values, len(counts), items, split.pool.astype("int64"), seed, split.name)
    places = Ragged(np.arange(len(train.values)), train.offsets)
    return Sequences(pooled, _windows(train, length, 1), _following(places, length), _windows(train, length, 0))


def _windows(rows: Ragged, length: int, skip: int) -> Ints:
    """Return the newest of each row without its `skip` newest, int64 [users, length], -1 where there are none."""
    made = windows(rows, replace(rows, values=np.zeros(len(rows.values), np.int64)), np.arange(len(rows)), length, skip)
    return np.where(made.real > 0, made.items, -1)


def _following(places: Ragged, length: int) -> Ints:
    """Return what follows each of the inputs, -1 where nothing does."""
    return np.where(_windows(places, length, 1) >= 0, _windows(places, length, 0), -1)
