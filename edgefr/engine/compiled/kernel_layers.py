"""A client takes its steps in layers of its own: forward, the loss's derivatives, backward, and its optimiser.

v_i = x_i @ layers, with ReLU between (`export.program.Layers` says which these are); score(u, i) = <u, v_i>

A client's values lie in one row, and stay in cache with its moments. No row is padding. A client's u is a vector of
its own, or the mean of its items: without an example's own item.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import reordered
from edge.optimiser import BETA_1
from edgefr.engine.compiled.kernel_training import CROSS_ENTROPY, judge

F = np.float32
KEPT = F(BETA_1)


@reordered
def _matrix(values: Any, at: int, rows: int, columns: int) -> Any:
    return values[at : at + rows * columns].reshape(rows, columns)


@reordered
def _forward(n: int, widths: Any, own: Any, room: Any, residual: bool) -> None:
    """Put what layers make of `n` rows behind these, layer after layer."""
    at, before, most = 0, 0, room.most
    for k in range(widths.shape[0] - 1):
        wide, narrow = widths[k], widths[k + 1]
        x, y = _matrix(room.x, before * most, n, wide), _matrix(room.x, (before + wide) * most, n, narrow)
        np.dot(x, _matrix(own, at, wide, narrow), y)
        at += wide * narrow
        bias, first = own[at : at + narrow], _matrix(room.x, 0, n, widths[0])
        last = k == widths.shape[0] - 2
        for m in range(n):
            if last:
                for j in range(narrow):
                    y[m, j] += bias[j]
            else:
                for j in range(narrow):
                    value = y[m, j] + bias[j]
                    y[m, j] = F(0) if value < F(0) else value  # what is no number stays none
            for j in range(narrow if last and residual else 0):
                y[m, j] += first[m, j]
        at += narrow
        before += wide


@reordered
def _backward(n: int, widths: Any, own: Any, room: Any) -> None:
    """Take the derivatives of what was put last back through the layers, to their weights and biases."""
    at, before, most = 0, 0, room.most
    for k in range(widths.shape[0] - 1):
        at += (widths[k] + 1) * widths[k + 1]
        before += widths[k]
    for k in range(widths.shape[0] - 2, -1, -1):
        wide, narrow = widths[k], widths[k + 1]
        x, by_y = _matrix(room.x, (before - wide) * most, n, wide), _matrix(room.by_x, before * most, n, narrow)
        at -= narrow
        by_bias = room.by_own[at : at + narrow]
        by_bias[:] = 0
        for m in range(n):
            for j in range(narrow):
                by_bias[j] += by_y[m, j]
        at -= wide * narrow
        before -= wide
        np.dot(x.T, by_y, _matrix(room.by_own, at, wide, narrow))
        if k > 0:
            by_x = _matrix(room.by_x, before * most, n, wide)
            np.dot(by_y, _matrix(own, at, wide, narrow).T, by_x)
            for m in range(n):
                for j in range(wide):
                    by_x[m, j] = F(0) if x[m, j] <= F(0) else by_x[m, j]


@reordered
def _compare(
    v: Any, by_v: Any, u: Any, by_u: Any, first: int, n: int, pairs: int, start: int, loss: Any, steps: Any, room: Any
) -> None:
    """Put the loss's derivatives by the rows and by the client's own vector in their places."""
    d, group = v.shape[1], steps.groups.shape[1]
    for m in range(n):
        total = F(0)
        for j in range(d):
            total += v[room.row[m], j] * u[j]
        room.score[m], room.weight[m], room.target[m] = total, steps.weight[first + m], steps.target[first + m]
    for g in range(pairs):
        for x in range(group):
            room.pair[g * group + x] = steps.groups[start + g, x] - first
    judge(0, n, 0, pairs, group, loss.kind, loss.temperature, room)
    for m in range(n):
        r, slope = room.row[m], room.score[m]
        for j in range(d):
            by_v[r, j] += slope * u[j]
            by_u[j] += slope * v[r, j]


@reordered
def _compare_with_mean(
    v: Any, by_v: Any, had: int, by_u: Any, first: int, n: int, pairs: int, start: int, loss: Any, steps: Any, room: Any
) -> None:
    """Put the loss's derivatives by the rows in their places; the first `had` rows are what the client had."""
    d, u, by_all = v.shape[1], np.zeros(v.shape[1], F), by_u
    for h in range(had):
        for j in range(d):
            u[j] += v[h, j]
    alone = loss.kind == CROSS_ENTROPY
    group = 1 if alone else steps.groups.shape[1]
    for g in range(n if alone else pairs):
        p = room.row[g] if alone else room.row[steps.groups[start + g, 0] - first]
        mine = steps.target[first + g] > F(0) if alone else True
        count, out = F(max(had - 1 if mine else had, 1)), F(1) if mine else F(0)
        for x in range(group):
            r, total = p if alone else room.row[steps.groups[start + g, x] - first], F(0)
            for j in range(d):
                total += (u[j] - out * v[p, j]) * v[r, j]
            at = g * group + x
            room.score[at], room.pair[at] = total / count, at
            if alone:
                room.weight[at], room.target[at] = steps.weight[first + g], steps.target[first + g]
    slots = n if alone else pairs * group
    judge(0, slots, 0, pairs, group, loss.kind, loss.temperature, room)
    for g in range(slots // group):
        p = room.row[g] if alone else room.row[steps.groups[start + g, 0] - first]
        mine = steps.target[first + g] > F(0) if alone else True
        count, out = F(max(had - 1 if mine else had, 1)), F(1) if mine else F(0)
        for x in range(group):
            r = p if alone else room.row[steps.groups[start + g, x] - first]
            slope = room.score[g * group + x] / count
            for j in range(d):
                before = v[r, j]
                by_v[r, j] += slope * (u[j] - out * v[p, j])
                by_all[j] += slope * before
                by_v[p, j] -= slope * out * before
    for h in range(had):
        for j in range(d):
            by_v[h, j] += by_all[j]


@reordered
def _adam(own: Any, first: Any, second: Any, by_own: Any, size: Any, small: Any, kept: Any) -> None:
    """Take a step of Adam (`edgefr.engine.optimisers.adam`) in one pass."""
    for j in range(own.shape[0]):
        g = by_own[j]
        first[j] += (F(1) - KEPT) * (g - first[j])
        second[j] = kept * second[j] + (F(1) - kept) * g * g
        own[j] -= size * first[j] / (np.sqrt(second[j]) + small)


@reordered
def _move(number: int, own: Any, first: Any, second: Any, by_own: Any, optimiser: Any) -> None:
    """Take an optimiser's step, the client's `number`-th from 0, with every tensor that is trained."""
    start = 0
    for t in range(optimiser.ends.shape[0]):
        end, rate = optimiser.ends[t], optimiser.rates[t]
        some, by_some = own[start:end], by_own[start:end]
        if optimiser.moments:
            size, small = F(rate * optimiser.sizes[number]), F(optimiser.epsilons[number])
            _adam(some, first[start:end], second[start:end], by_some, size, small, optimiser.beta_2)
        else:
            for j in range(end - start):
                some[j] -= F(rate) * by_some[j]
        start = end


@reordered
def _lay(items: Any, rows: Any, x: Any) -> None:
    """Put the rows of items into the first layer's."""
    for m in range(items.shape[0]):
        for j in range(x.shape[1]):
            x[m, j] = rows[items[m], j]


@reordered
def train_layers(
    tables: Any, steps: Any, widths: Any, loss: Any, optimiser: Any, own: Any, first: Any, second: Any, room: Any
) -> None:
    """Take all steps of a shard's clients, one client after another; `own` [C, P] is moved, moments [C, P] with it.

    A row of `own` has weights and biases by layer, then the client's vector, which none have whose `users` are 0 wide.
    """
    f, d, layers = widths[0], widths[-1], 0
    for k in range(widths.shape[0] - 1):
        layers += (widths[k] + 1) * widths[k + 1]
    for k in range(widths.shape[0] - 1):
        f += widths[k + 1]
    last = (f - d) * room.most
    wide = widths[0]
    for c in range(own.shape[0]):
        begin, had = tables.had_ends[c], tables.had_ends[c + 1] - tables.had_ends[c]
        for h in range(had):
            room.seen[tables.had[begin + h]] = h + 1
        every = _matrix(room.x, 0, room.most, wide)
        _lay(tables.had[begin : begin + had], tables.rows, every)
        for s in range(steps.first.shape[0]):
            n, at = steps.count[s, c], steps.first[s, c]
            rows = had
            for m in range(n):
                i = steps.items[at + m]
                known = room.seen[i]
                room.row[m] = known - 1 if known else rows
                if known == 0:
                    room.item[rows - had] = i
                    rows += 1
            if n == 0:
                continue
            _lay(room.item[: rows - had], tables.rows, every[had:])
            mine = own[c]
            _forward(rows, widths, mine, room, loss.residual)
            v, by_v = _matrix(room.x, last, rows, d), _matrix(room.by_x, last, rows, d)
            by_v[:] = 0
            room.by_u[:] = 0
            pairs, start = steps.pairs[s, c], steps.first_pair[s, c]
            if loss.mean:
                _compare_with_mean(v, by_v, had, room.by_u, at, n, pairs, start, loss, steps, room)
            else:
                u = tables.users[c] if tables.users.shape[1] else mine[layers : layers + d]
                _compare(v, by_v, u, room.by_u, at, n, pairs, start, loss, steps, room)
                for j in range(mine.shape[0] - layers):
                    room.by_own[layers + j] = room.by_u[j]
            _backward(rows, widths, mine, room)
            _move(room.done[c], mine, first[c], second[c], room.by_own, optimiser)
            room.done[c] += 1
        for h in range(had):
            room.seen[tables.had[begin + h]] = 0
