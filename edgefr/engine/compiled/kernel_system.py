"""A client solves its linear system and makes its gradient, which is summed, all while it is in cache.

(G + alpha Σ y y' + ridge I) x = (1 + alpha) Σ y, sums over the rows y of what it had (FCF, Eq. 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import compiled
from cloud.compiled.lanes import dot
from edgefr.engine.compiled.kernel_draws import numbered
from edgefr.engine.compiled.kernel_run import add, factor_of, norm_of

F = np.float32


@compiled
def _distinct(had: Any, begin: int, end: int, seen: Any, item: Any) -> int:
    """Lay out, once each, the items that a client had. Return how many; `seen` [items] is zeros, and left so."""
    count = 0
    for at in range(begin, end):
        count = numbered(seen, item, had[at], count)
    for r in range(count):
        seen[item[r]] = 0
    return count


@compiled
def _system(had: Any, rows: Any, gram: Any, alpha: Any, matrix: Any) -> None:
    """Lay the system out: its matrix without the ridge, and its right side as the last column."""
    d = rows.shape[1]
    for i in range(d):
        matrix[i, d] = 0
        for k in range(d):
            matrix[i, k] = gram[i, k]
    for at in range(0, len(had) - 1, 2):  # two rows at a time, since the matrix is what memory is busy with
        one, other = had[at], had[at + 1]
        for i in range(d):
            by, by_other = alpha * rows[one, i], alpha * rows[other, i]
            for k in range(d):
                matrix[i, k] += by * rows[one, k] + by_other * rows[other, k]
            matrix[i, d] += rows[one, i] + rows[other, i]
    for r in had[len(had) // 2 * 2 :]:
        for i in range(d):
            by = alpha * rows[r, i]
            for k in range(d):
                matrix[i, k] += by * rows[r, k]
            matrix[i, d] += rows[r, i]
    for i in range(d):
        matrix[i, d] *= F(1) + alpha


@compiled
def _solve(matrix: Any, ridge: Any, x: Any) -> None:
    """Solve by elimination without a choice of pivots: none is smaller than the ridge."""
    d = x.shape[0]
    for p in range(d):
        pivot = (F(0) if matrix[p, p] < 0 else matrix[p, p]) + ridge  # what is no number stays none
        for k in range(p + 1, d + 1):
            matrix[p, k] /= pivot
        for i in range(p + 1, d):
            by = matrix[i, p]
            for k in range(p + 1, d + 1):
                matrix[i, k] -= by * matrix[p, k]
    for p in range(d - 1, -1, -1):
        total = matrix[p, d]
        for k in range(p + 1, d):
            total -= matrix[p, k] * x[k]
        x[p] = total


@compiled
def _gradient(had: Any, rows: Any, alpha: Any, x: Any, room: Any) -> None:
    """Move the rows of what a client had, and G's behind them, against the gradient of the loss (Eq. 5, at rate 1)."""
    for r in range(had.shape[0]):
        score = dot(rows, had[r], x, x.shape[0])
        by = F(2) * ((F(1) + alpha) * (F(1) - score) + score)
        room.moved[r] = True
        for k in range(x.shape[0]):
            room.change[r, k] = by * x[k]
    for i in range(x.shape[0]):
        r = had.shape[0] + i
        room.item[r], room.moved[r] = rows.shape[0] + i, True
        for k in range(x.shape[0]):
            room.change[r, k] = -(x[i] * x[k])


@compiled
def run(had: Any, ends: Any, tensors: Any, terms: Any, users: Any, room: Any, out: Any) -> int:
    """Let a shard's clients solve one after another, and add up their releases. Return how many rows have a sum.

    `users` [C, d] get the solutions; clients without items keep theirs. G's rows are numbered behind the items.
    """
    norms, d = out.norms, users.shape[1]
    by_width = np.empty(d, np.float64)
    slots = 0
    for c in range(norms.shape[0]):
        mine, x = room.item[: _distinct(had, ends[c], ends[c + 1], out.seen, room.item)], users[c]
        norms[c] = 0
        if not len(mine):
            continue
        _system(mine, tensors.rows, tensors.gram, tensors.alpha, room.matrix)
        _solve(room.matrix, tensors.ridge, x)
        _gradient(mine, tensors.rows, tensors.alpha, x, room)
        norms[c] = norm_of(len(mine) + d, terms.l1, by_width, room)
        if not norms[c] <= terms.largest:  # so of what is no number
            continue
        factor = factor_of(norms[c], terms.clip) * terms.share
        slots = add(len(mine) + d, factor, terms.sizes[c], terms.step, slots, out, room)
    for s in range(slots):
        out.slot[out.found[s]] = 0
    return slots
