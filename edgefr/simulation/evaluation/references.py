"""These references learn nothing. A model that does not beat them has learned nothing worth shipping.

Targets that the user had before (`repeats`) are told from new ones: one metric over both hides which was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.config import random_streams as purposes
from edgefr.data.splits.sessions import Sessions
from edgefr.data.splits.split import Items, Split, Task, Which
from edgefr.simulation.evaluation.ranking import Scorer, TiedScorer, columns
from privacy import keyed

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Scope = Literal["train", "session", "all"]


def popularity(split: Split) -> Scorer:
    """Score = how many of the split's users have the item in train; the same for every user.

    In the target split of a cross-domain task that is the target's own popularity, which cold start may not
    see.
    """
    return popularity_of(split.train, split.pool)


def popularity_of(train: Ragged, pool: npt.NDArray[np.integer]) -> Scorer:
    """Score an item by how often it is in `train`, any user's; the same for every user.

    For blocks, what of them counts is the caller's choice (the block's own training items, or everything so far).

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


def text_mean(vectors: npt.NDArray[np.float32], split: Task, train: bool = True) -> Scorer:
    """Score an item by how near its text is to the user's.

    That is the inner product of the item's text vector with the mean of those of the user's items, all of unit length.

    `vectors` is float32 [items of the catalogue, f]. The user's items are those of `split.train` and
    `split.history`; ``train=False`` leaves the former out, which is cold start. The order over items is that
    of the cosine, since a user's mean is not normalised. Users with no items score 0 everywhere.
    """
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, 1)
    ranked = unit if len(split.pool) == len(unit) else unit[split.pool]

    last: tuple[npt.NDArray[np.int64], np.ndarray] = np.zeros(0, np.int64), unit[:0]

    def means(users: npt.NDArray[np.int64]) -> np.ndarray:
        """Return the users' means, which are kept for whoever asks next: the same users' other items, or a hybrid."""
        nonlocal last
        if not np.array_equal(last[0], users):
            parts = [split.history.take(users)] + ([split.train.take(users)] if train else [])
            total = sum(_row_sums(unit, part) for part in parts)
            count = sum(part.counts for part in parts)
            last = users.copy(), total / np.maximum(count, 1)[:, None].astype(unit.dtype)
        return last[1]

    def score(users: npt.NDArray[np.int64], items: npt.NDArray[np.int32] | None) -> np.ndarray:
        user = means(users)
        if items is None:
            return user @ ranked.T
        return np.einsum("nkf,nf->nk", unit[items], user)

    return score


COLUMNS = 16
"""Columns that are summed at once: a column's values lie together then, which `reduceat` takes four times as fast."""


def _row_sums(table: np.ndarray, rows: Ragged) -> np.ndarray:
    """Return the sum of the table's rows named by each ragged row: [n, f]."""
    out = np.zeros((len(rows), table.shape[1]), table.dtype)
    filled = rows.counts > 0
    if filled.any():
        starts = rows.offsets[:-1][filled]
        for at in range(0, table.shape[1], COLUMNS):
            some = np.ascontiguousarray(table[:, at : at + COLUMNS].T)
            out[filled, at : at + COLUMNS] = np.add.reduceat(some[:, rows.values], starts, axis=1).T
    return out


def random(seed: int, split: Task) -> Scorer:
    """Score = a number in [0, 1) of (seed, user, item): the floor."""
    key = keyed.key(seed, purposes.RANDOM_REFERENCE)

    def score(users: npt.NDArray[np.int64], items: npt.NDArray[np.int32] | None) -> np.ndarray:
        return keyed.uniform(keyed.fold(key, users)[:, None], split.pool[None, :] if items is None else items)

    return score


def unknown(seed: int, split: Task) -> TiedScorer:
    """Score as a model that knows no item of the split: all are tied, and its lists are those of chance."""
    return TiedScorer(random(seed, split))


def ties_by_chance(score: Scorer, seed: int, split: Split) -> Scorer:
    """Let the ties of a scorer of whole numbers fall by chance, the same way whenever it is asked.

    Without it all are against the target.
    """
    chance = random(seed, split)

    def broken(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        return score(users, items) + chance(users, items)

    return broken


def seen_first(score: Scorer, seen: Ragged, split: Split) -> Scorer:
    """Put every item in the user's row of `seen` [users] before all others; within either, by `score`."""

    def first(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        scores = np.asarray(score(users, items), np.float64)
        width = scores.max(axis=1, keepdims=True) - scores.min(axis=1, keepdims=True)
        return scores + holds(seen, users, items, split) * (1 + width)

    return first


def seen_then_popularity(split: Split, seen: Ragged | None = None) -> Scorer:
    """Rank what the user has had, by popularity, then everything else by popularity.

    `seen` [users] is what counts as had (default: the training items); `had` knows the session that is asked about as
    well. Scores are whole numbers.
    """
    return seen_first(popularity(split), split.train if seen is None else seen, split)


def with_popularity(score: Scorer, weight: float, split: Split) -> Scorer:
    """Return `score` of unit spread over the split's pool, plus `weight` times log(1 + users who had the item)."""
    counts = popularity(split)

    def scored(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        pool = np.asarray(score(users, None), np.float64)
        mean, spread = pool.mean(axis=1, keepdims=True), pool.std(axis=1, keepdims=True)
        own = pool if items is None else np.asarray(score(users, items), np.float64)
        return (own - mean) / np.where(spread > 0, spread, 1.0) + weight * np.log1p(counts(users, items))

    return scored


def with_history(score: Scorer, bonus: float, seen: Ragged, split: Split) -> Scorer:
    """`score` plus `bonus` on every item in the user's row of `seen` [users]: a scorer that knows what was had."""

    def scored(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        return np.asarray(score(users, items)) + bonus * holds(seen, users, items, split)

    return scored


def holds(seen: Ragged, users: npt.NDArray[np.int64], items: Items | None, split: Split) -> npt.NDArray[np.bool_]:
    """Say which of the items [n, k] (None: of the split's pool) are in the user's row of `seen` [users], bool [n, k].

    >>> from types import SimpleNamespace
    >>> split = SimpleNamespace(pool=np.array([2, 5, 7]))
    >>> holds(Ragged.from_lists([[1], [7, 2]]), np.array([1]), None, split).tolist()
    [[True, False, True]]
    """
    own = seen.take(users)
    if items is None:
        out = np.zeros((len(users), len(split.pool)), bool)
        at = columns(split.pool, own.values)
        out[own.rows[at >= 0], at[at >= 0]] = True
        return out
    bound = 1 + max(int(items.max(initial=0)), int(own.values.max(initial=0)))
    return np.isin(np.arange(len(users))[:, None] * bound + items, own.rows * bound + own.values)


def last_item_cooccurrence(split: Split, sessions: Sessions, which: Which) -> Scorer:
    """Score an item by how many training sessions, anybody's, hold it together with the last item before the target.

    Ties go by popularity. That last item is in all of its own sessions, so it comes first.

    Scores are whole numbers. Users without a session of `which` get popularity alone.
    """
    each = sessions.items.take(sessions.train.values)
    bound = int(split.pool[-1]) + 1
    session, item = np.divmod(np.unique(each.rows * bound + each.values), bound)  # every item once per session
    inside = Ragged.from_sorted(session, columns(split.pool, item), len(each))
    by_item = np.argsort(item, kind="stable")
    holding = Ragged.from_sorted(item[by_item], session[by_item], bound)
    popular = popularity(split)
    ends, held = sessions.items.offsets[1:], sessions.held(which)

    def row(user: int) -> npt.NDArray[np.float64]:
        if held[user] < 0:
            return np.zeros(len(split.pool))
        together = inside.take(holding[int(sessions.items.values[ends[held[user]] - 2])])
        return np.bincount(together.values, minlength=len(split.pool)).astype(np.float64)

    def score(users: npt.NDArray[np.int64], items: Items | None) -> np.ndarray:
        out = np.array(popular(users, items), np.float64)
        above = 1.0 + len(split.train)  # no item is more popular than that
        for at, user in enumerate(users):
            counts = row(int(user))
            out[at] += above * (counts if items is None else counts[columns(split.pool, items[at])])
        return out

    return score


# --- repeats ----------------------------------------------------------------------------------------------------------


def had(split: Split, sessions: Sessions, which: Which, scope: Scope = "session") -> Ragged:
    """Items that every user had had when the held-out session asks, int64 [users], ascending and once each.

    "train": in training. "session": or earlier in the session that is asked about. "all": or in the validation session
    when testing, which a device knows too.
    """
    asked = [(sessions.held(which), 1)] if scope != "train" else []
    if scope == "all" and which == "test":
        asked.append((sessions.valid, 0))
    row, item = [split.train.rows], [split.train.values.astype(np.int64)]
    for held, without in asked:
        users = np.flatnonzero(held >= 0)
        each = sessions.items.take(held[users])
        earlier = np.arange(len(each.values)) < (each.offsets[1:] - without)[each.rows]
        row.append(users[each.rows[earlier]])
        item.append(each.values[earlier].astype(np.int64))
    bound = 1 + int(sessions.items.values.max(initial=0))
    code = np.unique(np.concatenate(row) * bound + np.concatenate(item))
    return Ragged.from_sorted(code // bound, code % bound, len(split.train))


@dataclass(frozen=True)
class Repeats:
    """This says which held-out items of `users` int64 [n], ascending, their users had had.

    bool [n] `train`, among their training items; `session`, earlier in the same session.
    """

    users: Ints
    train: Flags
    session: Flags

    @property
    def seen(self) -> Flags:
        """Say whose target was in training or earlier in the session, bool [n]."""
        return self.train | self.session

    def shares(self) -> dict[str, float]:
        """Return the shares of users whose target is a repeat of either kind, and new; NaN where there is nobody."""
        kinds = {"train": self.train, "session": self.session, "seen": self.seen, "new": ~self.seen}
        return {name: _mean(flags.astype(np.float64)) for name, flags in kinds.items()}


def repeats(split: Split, sessions: Sessions, which: Which) -> Repeats:
    """Say which held-out items are repeats, of everybody who has one."""
    users = split.users(which)
    target = (split.valid if which == "valid" else split.test)[users][:, None]
    each = sessions.items.take(sessions.held(which)[users])
    again = (each.values == target[each.rows, 0]) & (np.arange(len(each.values)) < each.offsets[1:][each.rows] - 1)
    session = np.bincount(each.rows[again], minlength=len(users)) > 0
    return Repeats(users, holds(split.train, users, target, split)[:, 0], session)


def _mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")
