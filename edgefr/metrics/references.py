"""References that learn nothing. A model that does not beat them has learned nothing worth shipping."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.data.protocols import Split
from edgefr.metrics.ranking import Scorer
from privacy import keyed


def popularity(split: Split) -> Scorer:
    """Score = how many of the split's users have the item in train; the same for every user.

    In the target split of a cross-domain task that is the target's own popularity, which cold start may not
    see.
    """
    return popularity_of(split.train, split.pool)


def popularity_of(train: Ragged, pool: npt.NDArray[np.integer]) -> Scorer:
    """Score = how often an item is in `train`, any user's; the same for every user. For blocks: what of them counts is
    the caller's choice (the block's own training items, or everything so far).

    `train` holds item numbers, at most once per user and block; `pool` the items that are ranked, ascending.

    >>> popularity_of(Ragged.from_lists([[1, 4], [4]]), np.array([1, 3, 4]))(np.array([7]), None).tolist()
    [[1.0, 0.0, 2.0]]
    """
    counts = np.bincount(train.values, minlength=int(pool[-1]) + 1).astype(np.float64)
    ranked = counts[pool]

    def score(users: npt.NDArray[np.int64], items: npt.NDArray[np.int32] | None) -> np.ndarray:
        if items is None:
            return np.broadcast_to(ranked, (len(users), len(ranked)))
        return counts[items]

    return score


def text_mean(vectors: npt.NDArray[np.float32], split: Split, train: bool = True) -> Scorer:
    """Score = inner product of the item's text vector with the mean of those of the user's items, all of unit
    length.

    `vectors` is float32 [items of the catalogue, f]. The user's items are those of `split.train` and
    `split.history`; ``train=False`` leaves the former out, which is cold start. The order over items is that
    of the cosine, since a user's mean is not normalised. Users with no items score 0 everywhere.
    """
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, 1)
    ranked = unit if len(split.pool) == len(unit) else unit[split.pool]

    def score(users: npt.NDArray[np.int64], items: npt.NDArray[np.int32] | None) -> np.ndarray:
        parts = [split.history.take(users)] + ([split.train.take(users)] if train else [])
        total = sum(_row_sums(unit, part) for part in parts)
        count = sum(part.counts for part in parts)
        user = total / np.maximum(count, 1)[:, None].astype(unit.dtype)
        if items is None:
            return user @ ranked.T
        return np.einsum("nkf,nf->nk", unit[items], user)

    return score


def _row_sums(table: np.ndarray, rows: Ragged) -> np.ndarray:
    """Sum of the table's rows named by each ragged row: [n, f]."""
    out = np.zeros((len(rows), table.shape[1]), table.dtype)
    filled = rows.counts > 0
    if filled.any():
        out[filled] = np.add.reduceat(table[rows.values], rows.offsets[:-1][filled], axis=0)
    return out


def random(seed: int, split: Split) -> Scorer:
    """Score = a number in [0, 1) of (seed, user, item): the floor."""
    key = keyed.key(seed, "random reference")

    def score(users: npt.NDArray[np.int64], items: npt.NDArray[np.int32] | None) -> np.ndarray:
        return keyed.uniform(keyed.fold(key, users)[:, None], split.pool[None, :] if items is None else items)

    return score
