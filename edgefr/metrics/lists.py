"""Ranks of users' held-out LISTS in full ranking, without ever sorting a whole row of scores.

Only places up to max(ks) count. A partition finds the k best scores of a row; targets below them are out, and the
rank of the few that are left is a count among those k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Progress, Ragged
from edgefr.metrics.ranking import Scorer, at_cutoffs, check_cutoffs, in_chunks, scored, users_at_once

Ints = npt.NDArray[np.int64]

_UNLISTED = np.iinfo(np.int64).max
_SCORES_IN_CACHE = 1 << 17


def rank_lists(
    score: Scorer,
    pool: npt.NDArray[np.integer],
    users: npt.NDArray[np.int64],
    targets: Ragged,
    leave_out: Ragged,
    ks: Sequence[int],
    chunk: int | None = None,
    progress: Progress | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    """HR@k, NDCG@k and Recall@k of users' held-out lists, ranked against the whole pool: float64 [n] each.

    `score(users, None)` gives a score for every item of `pool` (item numbers, ascending). Row i of `targets` (held-out
    items, without repeats) and of `leave_out` (items that are not ranked) belongs to ``users[i]``; both hold item
    numbers. `leave_out` never removes a target; repeats in it and items outside the pool are ignored. NDCG and Recall
    as in `edgefr.metrics.ranking.at_cutoffs` (F3CRec §5.1), ties and NaN as in `edgefr.metrics.evaluate`; users without
    targets get NaN. `chunk` users are scored in one call (default: at most 1024, fewer for large pools).

    Raises `InputError` for cut-offs below 1; `ValueError`, as a fault of the caller, when rows do not align, a target
    is not in the pool or is listed twice.

    >>> found = rank_lists(
    ...     lambda users, items: np.array([[0.1, 0.9, 0.5]]), np.array([3, 5, 8]), np.array([7]),
    ...     targets=Ragged.from_lists([[3, 8]]), leave_out=Ragged.from_lists([[5]]), ks=[1])
    >>> {name: values.tolist() for name, values in found.items()}
    {'HR@1': [1.0], 'NDCG@1': [1.0], 'Recall@1': [0.5]}
    """
    check_cutoffs(ks)
    if not len(users) == len(targets) == len(leave_out):
        raise ValueError(f"{len(users)} users, {len(targets)} rows of targets, {len(leave_out)} rows to leave out")
    column = np.full(int(pool[-1]) + 2, -1, np.int64)  # by item number; the last place is for every number above
    column[pool] = np.arange(len(pool))
    wanted, hidden = _columns(targets, column), _columns(leave_out, column)
    if (wanted.values < 0).any():
        raise ValueError(f"item {targets.values[wanted.values < 0][0]} is held out but is not in the pool")
    ranks = np.empty(len(targets.values), np.int64)
    for start, stop in in_chunks(len(users), chunk or users_at_once(len(pool)), progress):
        scores = scored(score, users[start:stop], None, len(pool))
        some = wanted.offsets[start], wanted.offsets[stop]
        ranks[slice(*some)] = _ranks(scores, _part(wanted, start, stop), _part(hidden, start, stop), max(ks))
    return at_cutoffs(Ragged(ranks, targets.offsets), ks)


def topk(
    ranked: np.ndarray, targets: Ragged, ks: Sequence[int], leave_out: Ragged | None = None
) -> dict[str, npt.NDArray[np.float64]]:
    """HR@k, NDCG@k and Recall@k per user, float64 [n], from scores or from lists that somebody else made.

    `ranked` is float scores [n, items] or whole numbers [n, K]: each user's recommended items, best first, K
    at least max(ks), -1 where the list ends. `targets[u]` are user u's held-out items (columns) without repeats;
    `leave_out[u]` items that are not ranked (scores only). Everything else as in `rank_lists`.

    >>> topk(np.array([[0.1, 0.9, 0.5]]), Ragged.from_lists([[0, 1]]), [2])["Recall@2"].tolist()
    [0.5]
    """
    check_cutoffs(ks)
    if len(ranked) != len(targets):
        raise ValueError(f"{len(ranked)} rows of scores but {len(targets)} rows of targets")
    if np.issubdtype(ranked.dtype, np.integer):
        if ranked.shape[1] < max(ks):
            raise ValueError(f"lists of {ranked.shape[1]} items cannot give metrics at {max(ks)}")
        return at_cutoffs(_listed_ranks(ranked, targets), ks)
    hidden = Ragged.empty(len(ranked)) if leave_out is None else leave_out
    return at_cutoffs(Ragged(_ranks(ranked, targets, hidden, max(ks)), targets.offsets), ks)


def _listed_ranks(top: np.ndarray, targets: Ragged) -> Ragged:
    hit = top[targets.rows] == targets.values[:, None]
    ranks = np.where(hit.any(axis=1), hit.argmax(axis=1) + 1, _UNLISTED)
    return Ragged(ranks.astype(np.int64), targets.offsets)


def _columns(items: Ragged, column: Ints) -> Ragged:
    """Item numbers as columns of the pool, -1 where they are not in it."""
    return Ragged(column[np.minimum(items.values, len(column) - 1)], items.offsets)


def _part(rows: Ragged, start: int, stop: int) -> Ragged:
    """Rows start..stop as views."""
    offsets = rows.offsets[start : stop + 1]
    return Ragged(rows.values[offsets[0] : offsets[-1]], offsets - offsets[0])


def _ranks(scores: np.ndarray, targets: Ragged, leave_out: Ragged, k: int) -> Ints:
    """Ranks of the targets (columns) that are at most k, int64 like `targets.values`; the others are `_UNLISTED`.

    Exact also where scores are equal, infinite or NaN. Columns of `leave_out` below 0 are ignored.
    """
    ranks = np.empty(len(targets.values), np.int64)
    size = max(1, _SCORES_IN_CACHE // max(scores.shape[1], 1))
    for start in range(0, len(scores), size):
        stop = min(start + size, len(scores))
        some = slice(targets.offsets[start], targets.offsets[stop])
        ranks[some] = _block_ranks(scores[start:stop], _part(targets, start, stop), _part(leave_out, start, stop), k)
    return ranks


def _block_ranks(scores: np.ndarray, targets: Ragged, leave_out: Ragged, k: int) -> Ints:
    """`_ranks` of rows that fit the processor's cache.

    Distances are negated scores: the best is the smallest, and NaN, which a partition puts last, stands for what is not
    ranked. Of m targets with equal distance in a row where c items are at most that far, the ranks are c - m + 1 .. c:
    they stand behind everything they tie with.
    """
    width = scores.shape[1]
    distance = np.negative(scores, dtype=np.result_type(scores, np.float32))
    row = targets.rows
    at, hidden = row * width + targets.values, leave_out.rows * width + leave_out.values
    _without_repeats(at)
    hidden = hidden[leave_out.values >= 0]
    own = distance.ravel()[at]
    distance.ravel()[hidden] = np.nan
    distance.ravel()[at] = own
    best, border = _best(distance, k)
    alive = np.flatnonzero(~(own > border[row]))
    own, row = own[alive], row[alive]
    count = np.count_nonzero(best[row] <= own[:, None], axis=1)
    tied = np.unique(row[own == border[row]])  # the k best hold only some of those at the border
    if len(tied):
        beyond = np.zeros(len(scores), np.int64)
        beyond[tied] = np.count_nonzero(distance[tied] <= border[tied, None], axis=1)
        count = np.where(own == border[row], beyond[row], count)
    if np.isnan(own).any():  # behind all that are ranked
        count = np.where(np.isnan(own), _ranked(at, hidden, distance.shape)[row], count)
    ranks = np.full(len(targets.values), _UNLISTED)
    ranks[alive] = count - _equals_behind(row, own)
    return ranks


def _best(distance: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k smallest of each row in any order, [n, k], and the largest of them, [n]; NaN where a row has fewer."""
    if distance.shape[1] < k:
        return distance, np.full(len(distance), np.nan, distance.dtype)
    best = np.partition(distance, k - 1, axis=1)[:, :k]
    return best, best[:, -1]


def _equals_behind(row: Ints, own: np.ndarray) -> Ints:
    """For every target how many others of its row with the same distance are placed behind it."""
    order = np.lexsort((own, row))
    row, own = row[order], own[order]
    same = (row[1:] == row[:-1]) & ((own[1:] == own[:-1]) | (np.isnan(own[1:]) & np.isnan(own[:-1])))
    ends = np.flatnonzero(np.append(~same, True)) if len(row) else np.empty(0, np.int64)
    out = np.empty(len(row), np.int64)
    out[order] = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(row))
    return out


def _ranked(at: Ints, hidden: Ints, shape: tuple[int, ...]) -> Ints:
    """How many items of each row are ranked at all, [n]."""
    gone = np.setdiff1d(hidden, at)
    return shape[1] - np.bincount(gone // shape[1], minlength=shape[0])


def _without_repeats(at: Ints) -> None:
    ordered = np.sort(at)
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError("a held-out item is listed twice for one user; a list must name each item once")
