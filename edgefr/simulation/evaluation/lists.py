"""Ranks of users' held-out LISTS in full ranking, without ever sorting a whole row of scores.

Only places up to max(ks) count. A partition finds the k best scores of a row; targets below them are out, and the
rank of the few that are left is a count among those k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.metrics.cutoffs import at_cutoffs, check_cutoffs
from edgefr.simulation.evaluation.ranking import Scorer, columns, in_chunks, scored, users_at_once
from privacy.progress import Progress

Ints = npt.NDArray[np.int64]

_UNLISTED = np.iinfo(np.int64).max
_VALUES_IN_CACHE = 1 << 17


def rank_lists(
    score: Scorer,
    pool: npt.NDArray[np.integer],
    users: npt.NDArray[np.int64],
    targets: Ragged,
    leave_out: Ragged,
    ks: Sequence[int],
    chunk: int | None = None,
    progress: Progress | None = None,
    named: Sequence[str] = (),
) -> dict[str, npt.NDArray[np.float64]]:
    """HR@k, NDCG@k and Recall@k of users' held-out lists, ranked against the whole pool: float64 [n] each.

    Further metrics are measured where they are `named`.

    `score(users, None)` gives a score for every item of `pool` (item numbers, ascending). Row i of `targets` (held-out
    items, without repeats) and of `leave_out` (items that are not ranked) belongs to ``users[i]``; both hold item
    numbers. `leave_out` never removes a target; repeats in it and items outside the pool are ignored. NDCG and Recall
    as in `edgefr.metrics.cutoffs.at_cutoffs` (F3CRec §5.1), ties and NaN as in `edgefr.metrics.evaluate`; users without
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
    wanted = Ragged(columns(pool, targets.values), targets.offsets)
    hidden = Ragged(columns(pool, leave_out.values), leave_out.offsets)
    if (wanted.values < 0).any():
        raise ValueError(f"item {targets.values[wanted.values < 0][0]} is held out but is not in the pool")
    ranks = np.empty(len(targets.values), np.int64)
    for start, stop in in_chunks(len(users), chunk or users_at_once(len(pool)), progress):
        scores = scored(score, users[start:stop], None, len(pool))
        some = wanted.offsets[start], wanted.offsets[stop]
        ranks[slice(*some)] = _ranks(scores, _part(wanted, start, stop), _part(hidden, start, stop), max(ks))
    return at_cutoffs(Ragged(ranks, targets.offsets), ks, named)


def _part(rows: Ragged, start: int, stop: int) -> Ragged:
    offsets = rows.offsets[start : stop + 1]
    return Ragged(rows.values[offsets[0] : offsets[-1]], offsets - offsets[0])


def _ranks(scores: np.ndarray, targets: Ragged, leave_out: Ragged, k: int) -> Ints:
    """Return ranks of the targets (columns), int64 like `targets.values`; those above k may be `_UNLISTED`.

    Exact also where scores are equal, infinite or NaN. Of m targets with equal scores in a row where c items score at
    least as much, the ranks are c - m + 1 .. c: they stand behind everything they tie with.
    """
    if not np.issubdtype(scores.dtype, np.floating):
        scores = scores.astype(np.float64)
    row = targets.rows
    own = -scores[row, targets.values]
    _without_repeats(row * scores.shape[1] + targets.values)
    best, border = _best(scores, targets, leave_out, k)
    alive = np.flatnonzero(~(own > border[row]))
    row, own = row[alive], own[alive]
    count = np.empty(len(own), np.int64)
    for start, stop in _blocks(len(own), best.shape[1]):
        count[start:stop] = np.count_nonzero(best[row[start:stop]] <= own[start:stop, None], axis=1)
    at_border = own == border[row]
    if at_border.any():  # the k best hold only some of the items there
        some, place = np.unique(row[at_border], return_inverse=True)
        distance = _distances(scores[some], targets.take(some), leave_out.take(some))
        count[at_border] = np.count_nonzero(distance <= border[some, None], axis=1)[place]
    lost = np.isnan(own)
    if lost.any():  # behind everything that is ranked
        count[lost] = _ranked(targets, leave_out, scores.shape[1])[row[lost]]
    ranks = np.full(len(targets.values), _UNLISTED)
    ranks[alive] = count - _equals_behind(row, own)
    return ranks


def _best(scores: np.ndarray, targets: Ragged, leave_out: Ragged, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k smallest distances of each row in any order, [n, k or all], and the k-th, [n].

    NaN: there are fewer.
    """
    n, width = scores.shape
    best, border = np.empty((n, min(k, width)), scores.dtype), np.full(n, np.nan, scores.dtype)
    for start, stop in _blocks(n, width):
        distance = _distances(scores[start:stop], _part(targets, start, stop), _part(leave_out, start, stop))
        if k <= width:
            distance.partition(k - 1, axis=1)
            border[start:stop] = distance[:, k - 1]
        best[start:stop] = distance[:, :k]
    return best, border


def _blocks(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of blocks of rows that fit the processor's cache."""
    size = max(1, _VALUES_IN_CACHE // max(width, 1))
    for start in range(0, rows, size):
        yield start, min(start + size, rows)


def _distances(scores: np.ndarray, targets: Ragged, leave_out: Ragged) -> np.ndarray:
    """Negated scores, the best is the smallest; NaN, which a partition puts last, for what is not ranked."""
    width = scores.shape[1]
    distance = np.negative(scores, order="C")
    flat, at = distance.reshape(-1), targets.rows * width + targets.values
    own = flat[at]
    hidden = leave_out.rows * width + leave_out.values
    flat[hidden if leave_out.values.min(initial=0) >= 0 else hidden[leave_out.values >= 0]] = np.nan
    flat[at] = own
    return distance


def _ranked(targets: Ragged, leave_out: Ragged, width: int) -> Ints:
    """Count how many of `width` items are ranked in each row, [n]."""
    at, hidden = targets.rows * width + targets.values, leave_out.rows * width + leave_out.values
    gone = np.setdiff1d(hidden[leave_out.values >= 0], at)
    return width - np.bincount(gone // width, minlength=len(targets))


def _equals_behind(row: Ints, own: np.ndarray) -> Ints:
    """Count for every target how many others of its row with the same distance are placed behind it."""
    order = np.lexsort((own, row))
    row, own = row[order], own[order]
    same = (row[1:] == row[:-1]) & ((own[1:] == own[:-1]) | (np.isnan(own[1:]) & np.isnan(own[:-1])))
    ends = np.flatnonzero(np.append(~same, True)) if len(row) else np.empty(0, np.int64)
    out = np.empty(len(row), np.int64)
    out[order] = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(row))
    return out


def _without_repeats(at: Ints) -> None:
    ordered = np.sort(at)
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError("a held-out item is listed twice for one user; a list must name each item once")
