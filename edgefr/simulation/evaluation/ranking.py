"""This ranks held-out items and makes metrics of the ranks, vectorised over users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged, joined
from edgefr.data.splits.split import Split
from edgefr.metrics.cutoffs import at_cutoffs
from privacy.errors import InputError
from privacy.progress import Progress

Ints = npt.NDArray[np.int64]
Scorer = Callable[[Ints, npt.NDArray[np.int32] | None], np.ndarray]
"""(users [n], items [n, K]) -> scores [n, K]; items None -> scores of the split's whole pool [n, len(pool)].
"""


_SCORES_AT_ONCE = 1 << 22
TILE = 1 << 14
"""Items of a pool that are scored at a time for many users, where a scorer can: what they take stays in the cache."""

Tile = Callable[[int, int], np.ndarray]
"""(start, stop) -> the scores of that part of the pool, [n, stop - start], for users named before."""


@runtime_checkable
class InTiles(Protocol):
    """This is a scorer that can score a part of the pool."""

    def in_tiles(self, users: Ints) -> Tile | None:
        """Return the scorer of parts of the pool for these users, None where the model cannot."""


@dataclass(frozen=True)
class TiedScorer:
    """This is the scorer of a model that knows nothing of any item that is asked for: all of them are tied.

    `evaluate` gives every rank the same probability, and metrics are what is expected. `order` is a scorer, which lists
    are made by, since these have to begin with something.
    """

    order: Scorer

    def __call__(self, users: Ints, items: npt.NDArray[np.int32] | None) -> np.ndarray:
        return self.order(users, items)


@dataclass(frozen=True)
class Ranking:
    """A ranking is the rank of every user's held-out item: 1 is best. `users`, `ranks` int64 [n].

    `tied`: the rank is any of 1 to that of `ranks`, with the same probability, and a metric is its expectation.

    >>> Ranking(np.array([0, 1]), np.array([1, 12])).metrics([10])
    {'HR@10': 0.5, 'NDCG@10': 0.5, 'Recall@10': 0.5}
    >>> Ranking(np.array([0]), np.array([100]), tied=True).metrics([10])["HR@10"]
    0.1
    """

    users: Ints
    ranks: Ints
    tied: bool = False

    def per_user(self, ks: Sequence[int], named: Sequence[str] = ()) -> dict[str, npt.NDArray[np.float64]]:
        """Every metric for every user, float64 [n], for paired tests; `named` as of `at_cutoffs`."""
        if not self.tied:
            return at_cutoffs(Ragged(self.ranks, np.arange(len(self.ranks) + 1)), ks, named)
        last = int(self.ranks.max(initial=1))
        of_each = at_cutoffs(Ragged(np.arange(1, last + 1), np.arange(last + 1)), ks, named)  # [last], by rank
        return {name: np.cumsum(values)[self.ranks - 1] / self.ranks for name, values in of_each.items()}

    def metrics(self, ks: Sequence[int]) -> dict[str, float]:
        """Return means over the users. With one held-out item per user Recall@k equals HR@k."""
        return {name: float(values.mean()) for name, values in self.per_user(ks).items()}


def evaluate(
    score: Scorer,
    split: Split,
    which: Literal["valid", "test"],
    ranking: Literal["sampled", "full"],
    users: npt.ArrayLike | None = None,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Rank the held-out items of `which` among the sampled candidates or the whole pool.

    Full ranking leaves out the user's own train items and, when testing, the validation item; nothing where the
    split's targets may be repeats (`Split.repeats`). Ties count against the held-out item, and so does a NaN score
    of its own; other items with a NaN score rank last. What is `TiedScorer` is tied, and metrics are
    expectations. `users` restricts who is evaluated; `chunk` users are scored in one call (default: at most 1024,
    fewer for large pools). Raises `InputError` when a user has nothing held out or nobody is left.

    Example: ``evaluate(references.popularity(split), split, "test", "sampled").metrics([10])["HR@10"]``
    """
    everyone = split.users(which)
    asked = everyone if users is None else np.asarray(users, dtype=np.int64)
    rows = np.minimum(np.searchsorted(everyone, asked), max(len(everyone) - 1, 0))
    if not len(asked) or not len(everyone):
        raise InputError(f"there is no user to evaluate: no user asked for has a {which} item")
    if (everyone[rows] != asked).any():
        raise InputError(f"user number {asked[everyone[rows] != asked][0]} has no {which} item to be ranked")
    candidates = split.valid_candidates if which == "valid" else split.test_candidates
    width = candidates.shape[1] if ranking == "sampled" else len(split.pool)
    chunk = chunk or users_at_once(width)
    tied = isinstance(score, TiedScorer)
    score = _alike(width) if tied else score
    if ranking == "full" and width > TILE and isinstance(score, InTiles) and score.in_tiles(asked[:1]) is not None:
        return Ranking(asked, _ranks_in_tiles(score, split, asked, which, progress))
    ranks = np.empty(len(asked), np.int64)
    for start, stop in in_chunks(len(asked), chunk, progress):
        some = asked[start:stop]
        if ranking == "sampled":
            scores = scored(score, some, candidates[rows[start:stop]], width)
            ranks[start:stop] = _rank(scores, np.zeros(len(some), np.int64), None)
        else:
            scores = scored(score, some, None, width)
            target = (split.valid if which == "valid" else split.test)[some]
            ranks[start:stop] = _rank(scores, columns(split.pool, target), _own(split, some, which))
    return Ranking(asked, ranks, tied)


def ranks_of(score: Scorer, split: Split, users: Ints, item: int) -> Ints:
    """Return the rank of one item in the test lists of these users, int64 [n]: 1 is best, ties count against it."""
    ranks, width = np.empty(len(users), np.int64), len(split.pool)
    for start, stop in in_chunks(len(users), users_at_once(width), None):
        some = users[start:stop]
        at = columns(split.pool, np.full(len(some), item))
        ranks[start:stop] = _rank(scored(score, some, None, width), at, _own(split, some, "test"))
    return ranks


def _alike(width: int) -> Scorer:
    return lambda users, items: np.zeros((len(users), width))


def users_at_once(width: int) -> int:
    """Return how many users' scores of `width` items are held at once, unless the caller says: at most 1024."""
    return max(1, min(1024, _SCORES_AT_ONCE // max(width, 1)))


def in_chunks(total: int, size: int, progress: Progress | None) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of every chunk of users; `progress` is told after each."""
    for start in range(0, total, size):
        stop = min(start + size, total)
        yield start, stop
        if progress is not None:
            progress("evaluate", stop, total, "users")


def scored(score: Scorer, users: Ints, items: npt.NDArray[np.int32] | None, width: int) -> np.ndarray:
    """The scorer's answer, [n, width]. Raises `ValueError` for any other shape: a fault of the scorer."""
    scores = np.asarray(score(users, items))
    if scores.shape != (len(users), width):
        raise ValueError(f"the scorer returned shape {scores.shape}; {(len(users), width)} was asked for")
    return scores


def left_out(split: Split, users: Ints, which: str) -> Ragged:
    """Return the items that full ranking leaves out, a row per user; nothing where targets may be repeats.

    Those are what the user trains on and, in a test, what validates.
    """
    if split.repeats:
        return Ragged.empty(len(users))
    train = split.train.take(users)
    return joined(train, split.lists("valid").take(users)) if which == "test" else train


def _own(split: Split, users: Ints, which: str) -> tuple[Ints, Ints]:
    """Return (row, position in the pool) of what full ranking leaves out."""
    out = left_out(split, users, which)
    at = columns(split.pool, out.values)
    return out.rows[at >= 0], at[at >= 0]


def columns(pool: npt.NDArray[np.integer], items: npt.NDArray[np.integer]) -> Ints:
    """Return item numbers as positions in the ascending `pool`, int64, -1 where they are not in it.

    >>> columns(np.array([2, 5]), np.array([5, 3, 9, -1])).tolist()
    [1, -1, -1, -1]
    """
    at = np.minimum(np.searchsorted(pool, items), len(pool) - 1)
    return np.where(pool[at] == items, at, -1).astype(np.int64)


def _rank(scores: np.ndarray, target: Ints, leave_out: tuple[Ints, Ints] | None) -> Ints:
    """Return 1 + how many others score at least as much as column `target` of each row; NaN as `evaluate` says."""
    rows = np.arange(len(scores))
    out = (rows, target) if leave_out is None else _both(rows, target, leave_out)
    return 1 + _ahead(scores, scores[rows, target], out)


def _both(rows: Ints, target: Ints, leave_out: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    return np.concatenate([rows, leave_out[0]]), np.concatenate([target, leave_out[1]])


def _ahead(scores: np.ndarray, own: np.ndarray, out: tuple[Ints, Ints]) -> Ints:
    """Return how many of each row, but for the places `out`, score at least its `own`, all of them if that is NaN."""
    ahead = scores >= own[:, None]
    if np.isnan(own).any():
        ahead |= np.isnan(own)[:, None]
    ahead[out] = False
    return np.count_nonzero(ahead, axis=1).astype(np.int64)


def _ranks_in_tiles(score: InTiles, split: Split, users: Ints, which: str, progress: Progress | None) -> Ints:
    """Return the ranks in the whole pool, of which a tile is scored at a time, for users of similar targets."""
    target = columns(split.pool, (split.valid if which == "valid" else split.test)[users])
    order, ranks = np.argsort(target, kind="stable"), np.empty(len(users), np.int64)
    for start, stop in in_chunks(len(users), users_at_once(TILE), progress):
        some = order[start:stop]
        tile = score.in_tiles(users[some])
        assert tile is not None
        ranks[some] = _rank_in_tiles(tile, len(split.pool), target[some], _own(split, users[some], which))
    return ranks


def _rank_in_tiles(tile: Tile, width: int, target: Ints, leave_out: tuple[Ints, Ints]) -> Ints:
    """Do what `_rank` does; a target's score is of the same product as what it is held to, so that equals are equal."""
    tiles = [(start, min(start + TILE, width)) for start in range(0, width, TILE)]
    own = np.empty(len(target), np.float32)
    for number in np.unique(target // TILE):
        mine = np.flatnonzero(target // TILE == number)
        own[mine] = tile(*tiles[number])[mine, target[mine] - tiles[number][0]]
    rows, at = _both(np.arange(len(target)), target, leave_out)
    order = np.argsort(at, kind="stable")
    rows, at = rows[order], at[order]
    ranks = np.ones(len(target), np.int64)
    for start, stop in tiles:
        here = slice(*np.searchsorted(at, [start, stop]))
        ranks += _ahead(tile(start, stop), own, (rows[here], at[here] - start))
    return ranks
