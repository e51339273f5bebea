"""Central ceilings are computed from everybody's training items in one place, which no federation may do.

They stand beside a run's model and say how much more there is to learn; a verdict is not decided by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cloud.references.ease import of_gram
from cloud.references.item_knn import likeness
from edge.ragged import Ragged
from edgefr.data.splits.split import Items, Task
from edgefr.metrics.settings import CEILINGS, EASE, ITEM_KNN
from edgefr.simulation.evaluation.ranking import Scorer, columns

RIDGE = 200.0
"""The ridge of EASE, that of method `ease`."""
MOST_DENSE = 4_000
"""Items of which tables of items by items are dense, and EASE is computed: it takes the cube of them."""
MOST_PAIRS = 100_000_000
"""Pairs of items that single users have, in all: above it items are not compared with each other."""


def ceilings(task: Task, train: Ragged, known: Ragged, only: Sequence[str] = CEILINGS) -> dict[str, Scorer]:
    """Return EASE and item-kNN, or those named by `only`, as far as they fit, by name.

    `train` [users] is what they learn from: training items alone. `known` [users] is what is known of a user who is
    asked about, with held-out items of nobody's that are asked for.
    """
    matrix, out = _matrix(train, task.pool), dict[str, Scorer]()
    each, small = np.diff(matrix.indptr).astype(np.float64), len(task.pool) <= MOST_DENSE
    if not matrix.nnz:
        return out
    if small and EASE in only:
        gram = (matrix.T @ matrix).toarray()
        out[EASE] = _by_items(of_gram(gram, RIDGE).astype(np.float32), known, task.pool)
    if ITEM_KNN in only and (float(each @ each) <= MOST_PAIRS or small):
        alike = likeness(matrix)
        popular = np.asarray(matrix.sum(axis=0)).ravel()
        weights = alike.toarray().astype(np.float32) if small else alike
        out[ITEM_KNN] = _by_items(weights, known, task.pool, popular / (1 + popular.max()) * 1e-6)
    return out


def _matrix(rows: Ragged, pool: npt.NDArray[np.integer]) -> Any:
    """Return which items of the pool every row has, sparse [rows, items of the pool], ones."""
    from scipy.sparse import csr_array

    at = columns(pool, rows.values)
    some = at >= 0
    ones = np.ones(int(some.sum()), np.float32)
    found = csr_array((ones, (rows.rows[some], at[some])), shape=(len(rows), len(pool)))
    found.data[:] = 1.0  # an item that a row has twice counts once
    return found.astype(np.float64)


def _by_items(weights: Any, known: Ragged, pool: npt.NDArray[np.integer], ties: Any = 0.0) -> Scorer:
    """Score an item by the sum of its weights over the items that a user is known to have; equals go by `ties`."""

    def score(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        found = _matrix(known.take(users), pool).astype(np.float32) @ weights
        scores = np.asarray(found.toarray() if hasattr(found, "toarray") else found) + ties
        return scores if items is None else np.take_along_axis(scores, columns(pool, items), axis=1)

    return score
