"""A reference without a model adds up what texts say, how many had an item, and how lately anybody did.

The text reader and two weights are chosen on validation items, from a few values each, and on nothing else. So it is
the best of a small family that learns no more than that, and what a learned model with texts should beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Dataset
from edgefr.data.splits.split import Items, Split, Task
from edgefr.simulation.evaluation.ranking import Ranking, Scorer, columns, in_chunks, users_at_once

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""What popularity and recency may weigh beside the texts' scores, whose spread over a user's candidates is 1."""
JUDGED_BY = 10
"""Weights are chosen by NDCG at this cut-off."""
MOST_USERS = 10_000
"""Weights are chosen on validation items of at most so many users, evenly spaced among all."""
MOST_SCORES = 1 << 19
"""And of blocks, which rank the whole pool, of so many users that there are no more scores."""


def hybrid(texts: Sequence[Scorer], task: Task, dataset: Dataset | None = None) -> Scorer:
    """Return the sum of a scorer of texts, popularity and recency, at what is best on validation items.

    Of several `texts` one is taken. All three know the task's training items alone. Without a `dataset` that has clock
    times there is no recency. Of what is equally good the first text and the smallest weights are taken.
    """
    parts = [popularity(task), *([recency(task, dataset)] if dataset is not None and dataset.clock else [])]
    users, items, hidden = _asked(task)
    weighed = [_weighed(parts, weights) for weights in product(WEIGHTS, repeat=len(parts))]
    best, text, scale, prior = -1.0, texts[0], 1.0, _weighed(parts, (1.0,) * len(parts))
    for one in texts if len(users) else ():
        said = np.empty(items.shape)
        for start, stop in in_chunks(len(users), users_at_once(items.shape[1]), None):
            said[start:stop] = one(users[start:stop], items[start:stop])
        spread = float(said.std(axis=1).mean()) or 1.0
        for added in weighed:
            scores = said / spread + added[items]
            ahead = scores[:, 1:] >= scores[:, :1]
            ranks = 1 + np.count_nonzero(ahead if hidden is None else ahead & ~hidden, axis=1)
            found = Ranking(users, ranks).metrics([JUDGED_BY])[f"NDCG@{JUDGED_BY}"]
            if found > best:
                best, text, scale, prior = found, one, spread, added

    def score(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        return np.asarray(text(users, items), np.float64) / scale + prior[task.pool if items is None else items]

    return score


def _asked(task: Task) -> tuple[Ints, Items, Flags | None]:
    """Return users [n], their validation item and what it is ranked against [n, 1 + k], and what of that is left out.

    A split has its candidates. A block has none: a few users' first held-out items are ranked against its whole pool.
    """
    everyone = task.users("valid")
    most = MOST_USERS if isinstance(task, Split) else max(1, MOST_SCORES // len(task.pool))
    rows = np.unique(np.linspace(0, len(everyone) - 1, min(len(everyone), most)).astype(np.int64))
    users = everyone[rows]
    if isinstance(task, Split):
        return users, np.asarray(task.valid_candidates[rows]), None
    held = task.held("valid")[rows]
    items = np.concatenate([held[:, None], np.broadcast_to(task.pool, (len(users), len(task.pool)))], axis=1)
    own = task.train.take(users)
    hidden = items[:, 1:] == held[:, None]
    hidden[own.rows, columns(task.pool, own.values)] = True
    return users, items, hidden


def _weighed(parts: list[Floats], weights: tuple[float, ...]) -> Floats:
    return np.asarray(sum(weight * part for weight, part in zip(weights, parts, strict=True)))


def popularity(split: Task) -> Floats:
    """Return log(1 + users who have an item in train), of mean 0 and spread 1 over the pool, by item number."""
    counts = np.bincount(split.train.values, minlength=int(split.pool[-1]) + 1)
    return _standard(np.log1p(counts), split)


def recency(split: Task, dataset: Dataset) -> Floats:
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


def _standard(values: Floats, split: Task) -> Floats:
    """Return values by item of mean 0 and spread 1 over the pool; where all are equal, zeros."""
    own = values[split.pool]
    spread = float(own.std())
    return (values - own.mean()) / (spread if spread > 0 else 1.0)
