"""This compiles FedCAR's gradients: the encoder passes a few contexts at a time, which stay in cache, and back.

The equations are those of `encoder.py` and `program.py`, which stay the oracle: contract tests hold both together. Here
a block of contexts is one matrix [contexts x L, d], so that every layer is one product; what lies between two layers is
a loop. A context without an item has no gradient, and is left out.

Owns: forward and backward of the encoder in its plain form, and of both losses. Does not own: query and key alone (what
comes in is their product), steps, rates, batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cloud.compiled import reordered

EPSILON = np.float32(1e-5)
"""What torch's layer norm adds to a variance."""

BLOCK = 32
"""Contexts of a block: its matrices stay in cache, and are too small to be worth a second thread."""


class Layers(NamedTuple):
    """These are the tensors of every client's encoder, [A, ...]; `meet` is query x key' / sqrt(d)."""

    position: Any
    meet: Any
    value: Any
    wide: Any
    wide_bias: Any
    narrow: Any
    narrow_bias: Any


class Passed(NamedTuple):
    """This is what a block of contexts leaves in an encoder, one row per place: [contexts x L, ...].

    `share` [contexts, L, L] is self-attention's; `first` and `hidden` are normalised, by factors beside them.
    """

    z: Any
    asked: Any
    share: Any
    mixed: Any
    first: Any
    first_scale: Any
    inner: Any
    hidden: Any
    hidden_scale: Any


@reordered
def _room(rows: int, length: int, d: int, wide: int) -> Any:
    f = np.float32
    return Passed(
        np.empty((rows, d), f),
        np.empty((rows, d), f),
        np.empty((rows // length, length, length), f),
        np.empty((rows, d), f),
        np.empty((rows, d), f),
        np.empty(rows, f),
        np.empty((rows, wide), f),
        np.empty((rows, d), f),
        np.empty(rows, f),
    )


@reordered
def _normalise(x: Any, scale: Any) -> None:
    """Normalise rows in place, and keep the factor of each."""
    width = np.float32(x.shape[1])
    for i in range(x.shape[0]):
        row = x[i]
        total = np.float32(0)
        for k in range(row.shape[0]):
            total += row[k]
        mean = total / width
        total = np.float32(0)
        for k in range(row.shape[0]):
            total += (row[k] - mean) * (row[k] - mean)
        factor = np.float32(1) / np.sqrt(total / width + EPSILON)
        for k in range(row.shape[0]):
            row[k] = (row[k] - mean) * factor
        scale[i] = factor


@reordered
def _normalise_back(gradient: Any, normed: Any, scale: Any) -> None:
    """Turn the gradient of normalised rows into that of what was normalised, in place."""
    width = np.float32(normed.shape[1])
    for i in range(normed.shape[0]):
        g, row = gradient[i], normed[i]
        total, along = np.float32(0), np.float32(0)
        for k in range(row.shape[0]):
            total += g[k]
            along += g[k] * row[k]
        total, along = total / width, along / width
        for k in range(row.shape[0]):
            g[k] = scale[i] * (g[k] - total - row[k] * along)


@reordered
def _dot(a: Any, b: Any) -> Any:
    total = np.float32(0)
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@reordered
def _add(out: Any, factor: Any, x: Any) -> None:
    for k in range(out.shape[0]):
        out[k] += factor * x[k]


@reordered
def _soften(logits: Any, there: Any) -> None:
    """Turn logits [L, n] into shares of the places that are there, in place; each column sums to 1."""
    length = logits.shape[0]
    for j in range(logits.shape[1]):
        most = np.float32(-np.inf)
        for i in range(length):
            if there[i] > 0 and logits[i, j] > most:
                most = logits[i, j]
        total = np.float32(0)
        for i in range(length):
            logits[i, j] = np.exp(logits[i, j] - most) if there[i] > 0 else np.float32(0)
            total += logits[i, j]
        for i in range(length):
            logits[i, j] /= total


@reordered
def _encode(layers: Any, a: int, rows: Any, context: Any, there: Any, at: Any, into: Any) -> None:
    """Pass contexts through a client's encoder (FedCAR Eq. 10-11); `at` names them among the client's pairs."""
    length = context.shape[1]
    n = at.shape[0] * length
    z, asked, mixed, first, inner, hidden = (
        into.z[:n], into.asked[:n], into.mixed[:n], into.first[:n], into.inner[:n], into.hidden[:n]
    )  # fmt: skip
    position, wide_bias, narrow_bias = layers.position[a], layers.wide_bias[a], layers.narrow_bias[a]
    for c in range(at.shape[0]):
        for i in range(length):
            row, to = rows[context[at[c], i]], z[c * length + i]
            for k in range(to.shape[0]):
                to[k] = row[k] + position[i, k]
    np.dot(z, layers.meet[a], asked)
    for c in range(at.shape[0]):
        share = into.share[c]
        for i in range(length):
            for j in range(length):
                share[i, j] = _dot(z[c * length + i], asked[c * length + j])
        _soften(share, there[at[c]])
        for j in range(length):
            to = mixed[c * length + j]
            to[:] = 0
            for i in range(length):
                _add(to, share[i, j], z[c * length + i])
    np.dot(mixed, layers.value[a], first)
    for r in range(n):
        for k in range(first.shape[1]):
            first[r, k] += z[r, k]
    _normalise(first, into.first_scale)
    np.dot(first, layers.wide[a], inner)
    for r in range(n):
        for k in range(inner.shape[1]):
            inner[r, k] = max(inner[r, k] + wide_bias[k], np.float32(0))
    np.dot(inner, layers.narrow[a], hidden)
    for r in range(n):
        for k in range(hidden.shape[1]):
            hidden[r, k] += first[r, k] + narrow_bias[k]
    _normalise(hidden, into.hidden_scale)


@reordered
def _sum(out: Any, x: Any) -> None:
    for r in range(x.shape[0]):
        for k in range(out.shape[0]):
            out[k] += x[r, k]


@reordered
def _more(out: Any, left: Any, right: Any, room: Any) -> None:
    """Add left' x right to a matrix."""
    np.dot(left.T, right, room)
    for i in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[i, k] += room[i, k]


@reordered
def _back(layers: Any, a: int, made: Any, gradient: Any, contexts: int, out: Any, rooms: Any) -> None:
    """Turn the gradient of `hidden` into that of z, in place, and add the tensors' gradients to `out`."""
    length = made.share.shape[1]
    n = contexts * length
    g, other, inside, square, tall, flat = gradient[:n], rooms[0][:n], rooms[1][:n], rooms[2], rooms[3], rooms[4]
    z, asked, mixed, first, inner = made.z[:n], made.asked[:n], made.mixed[:n], made.first[:n], made.inner[:n]
    _normalise_back(g, made.hidden[:n], made.hidden_scale)
    _sum(out.narrow_bias[a], g)
    _more(out.narrow[a], inner, g, flat)
    np.dot(g, layers.narrow[a].T, inside)
    for r in range(n):
        for k in range(inside.shape[1]):
            if inner[r, k] <= 0:
                inside[r, k] = 0
    _sum(out.wide_bias[a], inside)
    _more(out.wide[a], first, inside, tall)
    np.dot(inside, layers.wide[a].T, other)
    for r in range(n):
        for k in range(g.shape[1]):
            g[r, k] += other[r, k]
    _normalise_back(g, first, made.first_scale)
    _more(out.value[a], mixed, g, square)
    np.dot(g, layers.value[a].T, other)  # of what was mixed
    shares = rooms[5]
    for c in range(contexts):
        share, at = made.share[c], c * length
        for j in range(length):
            along = np.float32(0)
            for i in range(length):
                _add(g[at + i], share[i, j], other[at + j])
                shares[i, j] = _dot(z[at + i], other[at + j])
                along += share[i, j] * shares[i, j]
            for i in range(length):
                shares[i, j] = share[i, j] * (shares[i, j] - along)
        for j in range(length):
            to = other[at + j]
            to[:] = 0
            for i in range(length):
                _add(to, shares[i, j], z[at + i])
                _add(g[at + i], shares[i, j], asked[at + j])
    _more(out.meet[a], z, other, square)
    np.dot(other, layers.meet[a].T, mixed)
    position = out.position[a]
    for r in range(n):
        for k in range(g.shape[1]):
            g[r, k] += mixed[r, k]
            position[r % length, k] += g[r, k]


@reordered
def _rooms(rows: int, length: int, d: int, wide: int) -> Any:
    f = np.float32
    return (
        np.empty((rows, d), f),
        np.empty((rows, wide), f),
        np.empty((d, d), f),
        np.empty((d, wide), f),
        np.empty((wide, d), f),
        np.empty((length, length), f),
    )


@reordered
def _attend(hidden: Any, c: int, rows: Any, places: Any, there: Any, share: Any) -> None:
    """Give each candidate its shares of a context, [L, K] (FedCAR Eq. 12-13)."""
    length = there.shape[0]
    narrower = np.float32(1) / np.sqrt(np.float32(rows.shape[1]))
    for i in range(length):
        for k in range(places.shape[0]):
            share[i, k] = _dot(hidden[c * length + i], rows[places[k]]) * narrower
    _soften(share, there)


@reordered
def _blocks(there: Any, weight: Any) -> Any:
    """Name the pairs that have a weight and a context."""
    found = np.empty(weight.shape[0], np.int64)
    n = 0
    for p in range(weight.shape[0]):
        if weight[p] != 0 and there[p].max() > 0:
            found[n] = p
            n += 1
    return found[:n]


@reordered
def _by_own_rows(rows: Any, places: Any, weight: Any, score: Any, bias: Any, out: Any) -> None:
    """Begin scores [P, K] with what candidates are worth without a context."""
    for p in range(places.shape[0]):
        for k in range(places.shape[1]):
            out[p, k] = _dot(rows[places[p, k]], score) + bias if weight[p] != 0 else np.float32(0)


@reordered
def _slope(scores: Any, weight: Any) -> None:
    """Turn a pair's scores [K] into the gradient of its cross-entropy (FedCAR Eq. 15), in place."""
    many = np.float32(scores.shape[0])
    for k in range(scores.shape[0]):
        chance = np.float32(1) / (np.float32(1) + np.exp(-scores[k]))
        scores[k] = (chance - np.float32(k == 0)) / many * weight


@reordered
def recommend(
    layers: Any, rows: Any, context: Any, there: Any, places: Any, weight: Any, scorer: Any, bias: Any, out: Any
) -> Any:
    """Return gradients of the first phase's loss: of rows [A, n, d], of the scorer [A, 2d] and its bias [A, 1].

    Places of contexts [A, P, L] and of candidates [A, P, K] are among a client's rows; `weight` [A, P] is each pair's.
    The encoder's are added to `out`.
    """
    clients, pairs, length = context.shape
    d, wide, many = rows.shape[2], layers.wide.shape[2], places.shape[2]
    by_rows, by_scorer, by_bias = np.zeros_like(rows), np.zeros_like(scorer), np.zeros_like(bias)
    size = BLOCK * length
    made, rooms, gradient = _room(size, length, d, wide), _rooms(size, length, d, wide), np.empty((size, d), np.float32)
    shares = np.empty((BLOCK, length, many), np.float32)
    worth = np.empty((BLOCK, length), np.float32)
    scores = np.empty((pairs, many), np.float32)
    narrower = np.float32(1) / np.sqrt(np.float32(d))
    for a in range(clients):
        row, by_row, of_context, of_query = rows[a], by_rows[a], scorer[a, :d], scorer[a, d:]
        _by_own_rows(row, places[a], weight[a], of_query, bias[a, 0], scores)
        some = _blocks(there[a], weight[a])
        alone = np.ones(pairs, np.bool_)
        alone[some] = False
        for p in range(pairs):
            if alone[p]:
                _slope(scores[p], weight[a, p])
        for start in range(0, some.shape[0], BLOCK):
            at = some[start : start + BLOCK]
            _encode(layers, a, row, context[a], there[a], at, made)
            for c in range(at.shape[0]):
                p, share = at[c], shares[c]
                _attend(made.hidden, c, row, places[a, p], there[a, p], share)
                for i in range(length):
                    worth[c, i] = _dot(made.hidden[c * length + i], of_context)
                    for k in range(many):
                        scores[p, k] += share[i, k] * worth[c, i]
                    gradient[c * length + i] = 0
                _slope(scores[p], weight[a, p])
                for k in range(many):
                    query, by_query, slope = row[places[a, p, k]], by_row[places[a, p, k]], scores[p, k]
                    seen = np.float32(0)
                    for i in range(length):
                        seen += share[i, k] * worth[c, i]
                    for i in range(length):
                        h, by_h = made.hidden[c * length + i], gradient[c * length + i]
                        pull = share[i, k] * slope * (worth[c, i] - seen) * narrower
                        lift = share[i, k] * slope
                        for x in range(d):
                            by_scorer[a, x] += lift * h[x]
                            by_query[x] += pull * h[x]
                            by_h[x] += pull * query[x] + lift * of_context[x]
            _back(layers, a, made, gradient, at.shape[0], out, rooms)
            for c in range(at.shape[0]):
                for i in range(length):
                    _add(by_row[context[a, at[c], i]], np.float32(1), gradient[c * length + i])
        for p in range(pairs):
            if weight[a, p] != 0:
                for k in range(many):
                    slope, query, by_query = scores[p, k], row[places[a, p, k]], by_row[places[a, p, k]]
                    by_bias[a, 0] += slope
                    for x in range(d):
                        by_scorer[a, d + x] += slope * query[x]
                        by_query[x] += slope * of_query[x]
    return by_rows, by_scorer, by_bias


@reordered
def _see(hidden: Any, c: int, share: Any, out: Any) -> None:
    """Write what each candidate sees in a context, [K, d]."""
    out[:] = 0
    for k in range(share.shape[1]):
        for i in range(share.shape[0]):
            _add(out[k], share[i, k], hidden[c * share.shape[0] + i])


@reordered
def contrast(
    layers: Any, before: Any, other: Any, rows: Any, context: Any, there: Any, places: Any, weight: Any, margin: Any,
    out: Any,
) -> None:  # fmt: skip
    """Add the gradients of the second phase's loss (FedCAR Eq. 20) to `out`; arguments as of `recommend`.

    `before` and `other` are the encoder that a client trained last, and another client's.
    """
    length, d, wide, many = context.shape[2], rows.shape[2], layers.wide.shape[2], places.shape[2]
    size = BLOCK * length
    made, rooms, gradient = _room(size, length, d, wide), _rooms(size, length, d, wide), np.empty((size, d), np.float32)
    passed = _room(size, length, d, wide)
    shares, share = np.empty((BLOCK, length, many), np.float32), np.empty((length, many), np.float32)
    near, far = np.empty((BLOCK, many, d), np.float32), np.empty((BLOCK, many, d), np.float32)
    now = np.empty((many, d), np.float32)
    narrower = np.float32(1) / np.sqrt(np.float32(d))
    for a in range(rows.shape[0]):
        row, some = rows[a], _blocks(there[a], weight[a])
        for start in range(0, some.shape[0], BLOCK):
            at = some[start : start + BLOCK]
            for which in range(2):
                _encode(before if which == 0 else other, a, row, context[a], there[a], at, passed)
                for c in range(at.shape[0]):
                    _attend(passed.hidden, c, row, places[a, at[c]], there[a, at[c]], share)
                    _see(passed.hidden, c, share, near[c] if which == 0 else far[c])
            _encode(layers, a, row, context[a], there[a], at, made)
            for c in range(at.shape[0]):
                p = at[c]
                _attend(made.hidden, c, row, places[a, p], there[a, p], shares[c])
                _see(made.hidden, c, shares[c], now)
                for i in range(length):
                    gradient[c * length + i] = 0
                for k in range(many):
                    gap, one, two, by_c = margin, near[c, k], far[c, k], now[k]
                    for x in range(d):
                        gap += (by_c[x] - one[x]) * (by_c[x] - one[x]) - (by_c[x] - two[x]) * (by_c[x] - two[x])
                    if gap <= 0:
                        continue
                    factor = np.float32(2) * weight[a, p] / np.float32(many)
                    for x in range(d):
                        by_c[x] = factor * (two[x] - one[x])
                    query, seen = row[places[a, p, k]], np.float32(0)
                    for i in range(length):
                        share[i, k] = _dot(made.hidden[c * length + i], by_c)
                        seen += shares[c, i, k] * share[i, k]
                    for i in range(length):
                        pull = shares[c, i, k] * (share[i, k] - seen) * narrower
                        lift, by_h = shares[c, i, k], gradient[c * length + i]
                        for x in range(d):
                            by_h[x] += pull * query[x] + lift * by_c[x]
            _back(layers, a, made, gradient, at.shape[0], out, rooms)
