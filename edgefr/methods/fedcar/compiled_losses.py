"""This gives the gradients of FedCAR's losses, compiled; the encoder is in `compiled_encoder.py`.

The equations are those of `encoder.py` and `program.py`, which stay the oracle: contract tests hold both together. What
is missing to a whole group of contexts has no items and no weight, so that its gradients are zeros.

Owns: blocks of contexts and both losses. Does not own: steps, rates, batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cloud.compiled import LANES, reordered
from cloud.compiled.lanes import add_columns_to_rows, exp, load, rows_to_columns, spread, store, where_not_above
from edgefr.methods.fedcar.compiled_encoder import back, by_logits, encode, layers_of, meet, mix, parted, soften

F = np.float32

BLOCK = 64
"""Contexts of a block: its matrices stay in cache, and are too small to be worth a second thread."""


class Tensors(NamedTuple):
    """These are the tensors of every client's encoder, [A, ...]; of its gradients as well."""

    position: Any
    query: Any
    key: Any
    value: Any
    wide: Any
    wide_bias: Any
    narrow: Any
    narrow_bias: Any


class Block(NamedTuple):
    """These are contexts `x` [d, C x L] where `there` [C x L], their candidates `q` [d, C x K] and weights [C]."""

    x: Any
    there: Any
    q: Any
    weight: Any


@reordered
def _begins(rows: Any, a: int, places: Any, at: Any, g: int, i: int, out: Any) -> None:
    """Say where a client's rows begin that are the i-th of a group's pairs; the last pair stands for missing ones."""
    for x in range(LANES):
        pair = at[min(g * LANES + x, at.shape[0] - 1)]
        out[x] = (a * rows.shape[1] + places[pair, i]) * rows.shape[2]


@reordered
def _columns(rows: Any, a: int, places: Any, at: Any, groups: int) -> Any:
    """Return rows of a client at `places` [P, n] of the pairs `at` as columns, [d, groups x n x LANES]."""
    d, n, begin = rows.shape[2], places.shape[1], np.empty(LANES, np.int64)
    width, whole, every = groups * n * LANES, d - d % LANES, rows.reshape(-1)
    out = np.empty((d, width), F)
    for g in range(groups):
        for i in range(n):
            _begins(rows, a, places, at, g, i, begin)
            column = (g * n + i) * LANES
            for k in range(0, whole, LANES):
                rows_to_columns(rows, begin, k, out, k * width + column, width)
            for k in range(whole, d):
                for x in range(LANES):
                    out[k, column + x] = every[begin[x] + k]
    return out


@reordered
def _give(columns: Any, a: int, places: Any, at: Any, rows: Any) -> None:
    """Add columns to the rows that `_columns` takes them from; those of missing pairs are zeros."""
    (d, width), n, begin = columns.shape, places.shape[1], np.empty(LANES, np.int64)
    whole, every = d - d % LANES, rows.reshape(-1)
    for g in range(width // n // LANES):
        for i in range(n):
            _begins(rows, a, places, at, g, i, begin)
            column = (g * n + i) * LANES
            for k in range(0, whole, LANES):
                add_columns_to_rows(rows, begin, k, columns, k * width + column, width)
            for k in range(whole, d):
                for x in range(LANES):
                    every[begin[x] + k] += columns[k, column + x]


@reordered
def _block(rows: Any, a: int, context: Any, there: Any, places: Any, weight: Any, at: Any) -> Any:
    groups, length = -(-at.shape[0] // LANES), there.shape[1]
    some, weights = np.zeros((groups, length, LANES), F), np.zeros(groups * LANES, F)
    for c in range(at.shape[0]):
        weights[c] = weight[at[c]]
        for i in range(length):
            some[c // LANES, i, c % LANES] = there[at[c], i]
    return Block(_columns(rows, a, context, at, groups), some, _columns(rows, a, places, at, groups), weights)


@reordered
def _weighed(weight: Any) -> Any:
    """Name the pairs that have a weight."""
    return np.flatnonzero(weight)


@reordered
def _attend(hidden: Any, block: Any) -> Any:
    """Give each candidate its shares of a context, [groups, L, K, LANES] (FedCAR Eq. 12-13)."""
    d = hidden.shape[0]
    share = meet(hidden, 0, block.q, 0, d, block.there.shape[0])
    soften(share, block.there, F(1) / np.sqrt(F(d)))
    return share


@reordered
def _slopes(block: Any, share: Any, worth: Any, scorer: Any, bias: Any) -> Any:
    """Return the derivatives of the cross-entropy by the scores of candidates, [C x K] (FedCAR Eq. 14-15)."""
    groups, length, many, _ = share.shape
    one, slopes = spread(F(1)), np.dot(scorer, block.q)
    for g in range(groups):
        weight = load(block.weight, g * LANES) / spread(F(many))
        for k in range(many):
            score = load(slopes, (g * many + k) * LANES) + spread(bias)
            for i in range(length):
                at = (g * length + i) * LANES
                score = score + load(share, at * many + k * LANES) * load(worth, at)
            chance = one / (one + exp(spread(F(0)) - score)) - spread(F(k == 0))
            store(slopes, (g * many + k) * LANES, chance * weight)
    return slopes


@reordered
def _by_share(slopes: Any, worth: Any, share: Any) -> Any:
    """Return the derivatives of the loss by the shares, and by what places are worth [C x L]."""
    groups, length, many, _ = share.shape
    out, by_worth = np.empty(share.shape, F), np.empty(worth.shape, F)
    for g in range(groups):
        for i in range(length):
            along, at = spread(F(0)), (g * length + i) * LANES
            for k in range(many):
                slope, own = load(slopes, (g * many + k) * LANES), at * many + k * LANES
                store(out, own, slope * load(worth, at))
                along = along + slope * load(share, own)
            store(by_worth, at, along)
    return out, by_worth


@reordered
def _outer(left: Any, right: Any) -> Any:
    """Return the products of every number with every other, [left, right]."""
    n = right.shape[0]
    out = np.empty((left.shape[0], n), F)
    for k in range(left.shape[0]):
        own = spread(left[k])
        for c in range(0, n, LANES):
            store(out, k * n + c, own * load(right, c))
    return out


@reordered
def recommend(
    tensors: Any, rows: Any, context: Any, there: Any, places: Any, weight: Any, scorer: Any, bias: Any, out: Any
) -> Any:
    """Return gradients of the first phase's loss: of rows [A, n, d], of the scorer [A, 2d] and its bias [A, 1].

    Places of contexts [A, P, L] and candidates [A, P, K] index a client's rows; `weight` [A, P] is each pair's. The
    encoder's gradients are added to `out`.
    """
    d, narrower = rows.shape[2], F(1) / np.sqrt(F(rows.shape[2]))
    by_rows, by_scorer, by_bias = np.zeros_like(rows), np.zeros_like(scorer), np.zeros_like(bias)
    for a in range(rows.shape[0]):
        layers, by_pair = layers_of(tensors, a), np.zeros((d, 2 * d), F)
        of_context, of_query, some = scorer[a, :d], scorer[a, d:], _weighed(weight[a])
        for start in range(0, some.shape[0], BLOCK):
            at = some[start : start + BLOCK]
            block = _block(rows, a, context[a], there[a], places[a], weight[a], at)
            made = encode(layers, block.x, block.there)
            share, worth = _attend(made.hidden, block), np.dot(of_context, made.hidden)
            slopes = _slopes(block, share, worth, of_query, bias[a, 0])
            by_share, by_worth = _by_share(slopes, worth, share)
            logits = by_logits(share, by_share, narrower)
            by_bias[a, 0] += slopes.sum()
            by_scorer[a, :d] += np.dot(made.hidden, by_worth)
            by_scorer[a, d:] += np.dot(block.q, slopes)
            by_query, g = _outer(of_query, slopes), _outer(of_context, by_worth)
            mix(logits, False, made.hidden, 0, by_query, 0, d)
            mix(logits, True, block.q, 0, g, 0, d)
            back(layers, made, g, True, out, by_pair, a)
            _give(g, a, context[a], at, by_rows)
            _give(by_query, a, places[a], at, by_rows)
        parted(by_pair, tensors, out, a)
    return by_rows, by_scorer, by_bias


@reordered
def _seen(share: Any, hidden: Any) -> Any:
    """Return what each candidate sees in a context, c [d, C x K] (FedCAR Eq. 12)."""
    d, (groups, _, many, _) = hidden.shape[0], share.shape
    out = np.zeros((d, groups * many * LANES), F)
    mix(share, False, hidden, 0, out, 0, d)
    return out


@reordered
def _apart(now: Any, near: Any, far: Any, weight: Any, margin: Any) -> None:
    """Put the derivative of the contrast (FedCAR Eq. 20) by c into the place of c, [d, C x K]."""
    d, n = now.shape
    many = n // weight.shape[0]
    zero = spread(F(0))
    for c in range(0, n, LANES):
        gap = spread(margin)
        for x in range(c, d * n, n):
            one, two = load(now, x) - load(near, x), load(now, x) - load(far, x)
            gap = gap + (one * one - two * two)
        share = spread(F(2)) * load(weight, c // LANES // many * LANES) / spread(F(many))
        factor = where_not_above(gap, zero, zero, share)
        for x in range(c, d * n, n):
            store(now, x, factor * (load(far, x) - load(near, x)))


@reordered
def contrast(
    tensors: Any, before: Any, other: Any, rows: Any, context: Any, there: Any, places: Any, weight: Any, margin: Any,
    out: Any,
) -> None:  # fmt: skip
    """Add the gradients of the second phase's loss (FedCAR Eq. 20) to `out`; arguments as of `recommend`.

    `before` is the encoder that a client trained last, `other` another client's.
    """
    d, narrower = rows.shape[2], F(1) / np.sqrt(F(rows.shape[2]))
    for a in range(rows.shape[0]):
        some = _weighed(weight[a])
        if not some.shape[0]:
            continue
        layers, by_pair = layers_of(tensors, a), np.zeros((d, 2 * d), F)
        own, others = layers_of(before, a), layers_of(other, a)
        for start in range(0, some.shape[0], BLOCK):
            block = _block(rows, a, context[a], there[a], places[a], weight[a], some[start : start + BLOCK])
            hidden = encode(own, block.x, block.there).hidden
            near = _seen(_attend(hidden, block), hidden)  # FedCAR Eq. 16
            hidden = encode(others, block.x, block.there).hidden
            far = _seen(_attend(hidden, block), hidden)  # FedCAR Eq. 17-19
            made = encode(layers, block.x, block.there)
            share = _attend(made.hidden, block)
            by_seen = _seen(share, made.hidden)
            _apart(by_seen, near, far, block.weight, margin)
            by_share = meet(made.hidden, 0, by_seen, 0, d, share.shape[0])
            g = np.zeros(made.hidden.shape, F)
            mix(share, True, by_seen, 0, g, 0, d)
            mix(by_logits(share, by_share, narrower), True, block.q, 0, g, 0, d)
            back(layers, made, g, False, out, by_pair, a)
        parted(by_pair, tensors, out, a)
