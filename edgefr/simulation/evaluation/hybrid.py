"""A reference without a model adds up what texts say, how many had an item, and how lately anybody did.

Two weights are chosen on validation items, from a few values each, and on nothing else. So it is the best of a small
family that learns no more than that, and what a learned model with texts should beat.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Dataset
from edgefr.data.splits.split import Items, Split
from edgefr.simulation.evaluation.ranking import Ranking, Scorer, in_chunks, users_at_once

Floats = npt.NDArray[np.float64]

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""What popularity and recency may weigh beside the texts' scores, whose spread over a user's candidates is 1."""
JUDGED_BY = 10
"""Weights are chosen by NDCG at this cut-off."""
MOST_USERS = 10_000
"""Weights are chosen on validation items of at most so many users, evenly spaced among all."""


def hybrid(text: Scorer, split: Split, dataset: Dataset) -> Scorer:
    """Return the sum of a scorer of texts, popularity and recency, at the weights that are best on validation items.

    All three know the split's training items alone. Without clock times there is no recency. Of weights that are
    equally good the smallest are taken.
    """
    parts = [popularity(split), *([recency(split, dataset)] if dataset.clock else [])]
    everyone = split.users("valid")
    rows = np.unique(np.linspace(0, len(everyone) - 1, min(len(everyone), MOST_USERS)).astype(np.int64))
    users, items, width = everyone[rows], split.valid_candidates[rows], split.valid_candidates.shape[1]
    said = np.empty((len(users), width))
    for start, stop in in_chunks(len(users), users_at_once(width), None):
        said[start:stop] = text(users[start:stop], items[start:stop])
    spread = float(said.std(axis=1).mean()) if len(users) else 0.0
    scale = spread if spread > 0 else 1.0

    def worth(weights: tuple[float, ...]) -> float:
        scores = said / scale + _weighed(parts, weights)[items]
        ranks = 1 + np.count_nonzero(scores[:, 1:] >= scores[:, :1], axis=1)
        return Ranking(users, ranks).metrics([JUDGED_BY])[f"NDCG@{JUDGED_BY}"]

    grid = list(product(WEIGHTS, repeat=len(parts)))
    prior = _weighed(parts, max(grid, key=worth) if len(users) else (1.0,) * len(parts))

    def score(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        return np.asarray(text(users, items), np.float64) / scale + prior[split.pool if items is None else items]

    return score


def _weighed(parts: list[Floats], weights: tuple[float, ...]) -> Floats:
    return np.asarray(sum(weight * part for weight, part in zip(weights, parts, strict=True)))


def popularity(split: Split) -> Floats:
    """Return log(1 + users who have an item in train), of mean 0 and spread 1 over the pool, by item number."""
    counts = np.bincount(split.train.values, minlength=int(split.pool[-1]) + 1)
    return _standard(np.log1p(counts), split)


def recency(split: Split, dataset: Dataset) -> Floats:
    """Return the rank of an item's newest time in train, of mean 0 and spread 1 over the pool, by item number.

    Items that nobody has there are the oldest; equal times have one rank.
    """
    items = len(dataset.catalogue)
    trained = split.train.rows.astype(np.int64) * items + split.train.values
    rows = np.isin(dataset.user.astype(np.int64) * items + dataset.item, trained)
    newest = np.full(int(split.pool[-1]) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, dataset.item[rows], dataset.moment[rows])
    ranks = np.zeros(len(newest))
    ranks[split.pool] = np.unique(newest[split.pool], return_inverse=True)[1]
    return _standard(ranks, split)


def _standard(values: Floats, split: Split) -> Floats:
    """Return values by item of mean 0 and spread 1 over the pool; where all are equal, zeros."""
    own = values[split.pool]
    spread = float(own.std())
    return (values - own.mean()) / (spread if spread > 0 else 1.0)
