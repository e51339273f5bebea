"""This compiles FedCAR's encoder: contexts of one client pass it together, and their gradients come back.

The equations are those of `encoder.py`. A block of C contexts is one matrix [d, C x L]: every layer is one product of
matrices, and what lies between two layers takes `LANES` contexts at a time, each in a lane. Columns are those of a
group of `LANES` contexts, place after place, then those of the next. Shares and logits of vectors that attend to others
are [groups, I, J, LANES]: what vector i is to j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cloud.compiled import LANES, reordered
from cloud.compiled.lanes import exp, load, root, spread, store, total, where_above, where_not_above

F = np.float32

EPSILON = F(1e-5)
"""What torch's layer norm adds to a variance."""

NOWHERE = F(-1e9)
"""The logit of a place without an item."""

NOTHING = F(1e-30)
"""What shares that are all 0 are divided by."""

FIVE = 5
"""Vectors that are read at once."""


@reordered
def meet(a: Any, from_a: int, b: Any, from_b: int, d: int, groups: int) -> Any:
    """Return the products [groups, I, J, LANES] of each vector i of `a` with each j of `b`.

    Vectors are `d` rows of their matrix from row `from_a` or `from_b`.
    """
    wide, high = a.shape[1], b.shape[1]
    many, others = wide // LANES // groups, high // LANES // groups
    out, whole = np.empty((groups, many, others, LANES), F), many - many % FIVE
    for g in range(groups):
        for j in range(others):
            to, right = (g * many * others + j) * LANES, from_b * high + (g * others + j) * LANES
            for i in range(0, whole, FIVE):
                s0 = s1 = s2 = s3 = s4 = spread(F(0))
                for k in range(d):
                    own, at = load(b, right + k * high), (from_a + k) * wide + (g * many + i) * LANES
                    s0, s1 = s0 + load(a, at) * own, s1 + load(a, at + LANES) * own
                    s2, s3 = s2 + load(a, at + 2 * LANES) * own, s3 + load(a, at + 3 * LANES) * own
                    s4 = s4 + load(a, at + 4 * LANES) * own
                at, step = to + i * others * LANES, others * LANES
                store(out, at, s0)
                store(out, at + step, s1)
                store(out, at + 2 * step, s2)
                store(out, at + 3 * step, s3)
                store(out, at + 4 * step, s4)
            for i in range(whole, many):
                s0, at = spread(F(0)), from_a * wide + (g * many + i) * LANES
                for k in range(d):
                    s0 = s0 + load(a, at + k * wide) * load(b, right + k * high)
                store(out, to + i * others * LANES, s0)
    return out


@reordered
def mix(share: Any, turned: bool, values: Any, from_values: int, out: Any, from_out: int, d: int) -> None:
    """Add to every vector j of `out` the sum of share i, j (`turned`: j, i) times vector i of `values`."""
    groups, wide, high = share.shape[0], values.shape[1], out.shape[1]
    many, others = wide // LANES // groups, high // LANES // groups
    along, across = (LANES, many * LANES) if turned else (others * LANES, LANES)
    whole = many - many % FIVE
    for g in range(groups):
        for j in range(others):
            to, begin = from_out * high + (g * others + j) * LANES, g * many * others * LANES + j * across
            for i in range(0, whole, FIVE):
                at, left = begin + i * along, from_values * wide + (g * many + i) * LANES
                s0, s1, s2 = load(share, at), load(share, at + along), load(share, at + 2 * along)
                s3, s4 = load(share, at + 3 * along), load(share, at + 4 * along)
                for k in range(d):
                    at = left + k * wide
                    more = s0 * load(values, at) + s1 * load(values, at + LANES) + s2 * load(values, at + 2 * LANES)
                    more = more + s3 * load(values, at + 3 * LANES) + s4 * load(values, at + 4 * LANES)
                    store(out, to + k * high, load(out, to + k * high) + more)
            for i in range(whole, many):
                s0, left = load(share, begin + i * along), from_values * wide + (g * many + i) * LANES
                for k in range(d):
                    store(out, to + k * high, load(out, to + k * high) + s0 * load(values, left + k * wide))


@reordered
def soften(logits: Any, there: Any, factor: Any) -> None:
    """Turn logits times a factor into shares [groups, I, LANES] in place; their sum over i is 1 (0: no items)."""
    groups, many, others, _ = logits.shape
    zero, by = spread(F(0)), spread(factor)
    for g in range(groups):
        for j in range(others):
            most, whole, first = spread(NOWHERE), zero, (g * many * others + j) * LANES
            for i in range(many):
                at = first + i * others * LANES
                now = where_above(load(there, (g * many + i) * LANES), zero, load(logits, at) * by, spread(NOWHERE))
                store(logits, at, now)
                most = where_above(now, most, now, most)
            for i in range(many):
                at = first + i * others * LANES
                now = exp(load(logits, at) - most) * load(there, (g * many + i) * LANES)
                store(logits, at, now)
                whole = whole + now
            whole = where_above(whole, zero, whole, whole + spread(NOTHING))  # what is no number stays none
            for i in range(many):
                at = first + i * others * LANES
                store(logits, at, load(logits, at) / whole)


@reordered
def by_logits(share: Any, by_share: Any, factor: Any) -> Any:
    """Return the derivatives by logits, before the factor of `soften`, from those by shares."""
    groups, many, others, _ = share.shape
    out, step = np.empty(share.shape, F), others * LANES
    for g in range(groups):
        for first in range(g * many * step, g * many * step + step, LANES):
            along = spread(F(0))
            for at in range(first, first + many * step, step):
                along = along + load(share, at) * load(by_share, at)
            for at in range(first, first + many * step, step):
                store(out, at, load(share, at) * (load(by_share, at) - along) * spread(factor))
    return out


class Layers(NamedTuple):
    """This is one client's encoder: `pair` [d, 2d] is query x key' beside the value."""

    position: Any
    pair: Any
    wide: Any
    wide_bias: Any
    narrow: Any
    narrow_bias: Any


class Passed(NamedTuple):
    """This is what a block of contexts leaves in an encoder: [d, C x L], `share` [groups, L, L, LANES] of itself.

    `both` [2d, C x L]: queries and values; `first` and `hidden` are normalised by the factors beside them.
    """

    z: Any
    both: Any
    share: Any
    first: Any
    first_scale: Any
    inner: Any
    hidden: Any
    hidden_scale: Any


@reordered
def layers_of(tensors: Any, a: int) -> Any:
    """Return a client's encoder."""
    d = tensors.query.shape[1]
    pair = np.empty((d, 2 * d), F)
    pair[:, :d] = np.dot(tensors.query[a], tensors.key[a].T)
    pair[:, d:] = tensors.value[a]
    return Layers(
        tensors.position[a], pair, tensors.wide[a], tensors.wide_bias[a], tensors.narrow[a], tensors.narrow_bias[a]
    )


@reordered
def _normalise(x: Any) -> Any:
    d, n = x.shape
    mean, scale, width = np.zeros(n, F), np.zeros(n, F), spread(F(d))
    for k in range(d):
        for c in range(0, n, LANES):
            store(mean, c, load(mean, c) + load(x, k * n + c))
    for c in range(0, n, LANES):
        store(mean, c, load(mean, c) / width)
    for k in range(d):
        for c in range(0, n, LANES):
            off = load(x, k * n + c) - load(mean, c)
            store(scale, c, load(scale, c) + off * off)
    for c in range(0, n, LANES):
        store(scale, c, spread(F(1)) / root(load(scale, c) / width + spread(EPSILON)))
    for k in range(d):
        for c in range(0, n, LANES):
            store(x, k * n + c, (load(x, k * n + c) - load(mean, c)) * load(scale, c))
    return scale


@reordered
def _normalise_back(gradient: Any, normed: Any, scale: Any) -> None:
    """Turn the gradient of normalised columns into that of what was normalised, in place."""
    d, n = normed.shape
    mean, along, share = np.zeros(n, F), np.zeros(n, F), spread(F(1) / F(d))
    for k in range(d):
        for c in range(0, n, LANES):
            g = load(gradient, k * n + c) * share
            store(mean, c, load(mean, c) + g)
            store(along, c, load(along, c) + g * load(normed, k * n + c))
    for k in range(d):
        for c in range(0, n, LANES):
            off = load(gradient, k * n + c) - load(mean, c) - load(normed, k * n + c) * load(along, c)
            store(gradient, k * n + c, load(scale, c) * off)


@reordered
def _biased(x: Any, bias: Any) -> None:
    """Add to every row its bias, and cut off what is below 0."""
    n = x.shape[1]
    for k in range(x.shape[0]):
        more, zero = spread(bias[k]), spread(F(0))
        for c in range(0, n, LANES):
            now = load(x, k * n + c) + more
            store(x, k * n + c, where_not_above(now, zero, zero, now))


@reordered
def _joined(x: Any, other: Any, bias: Any) -> None:
    n = x.shape[1]
    for k in range(x.shape[0]):
        more = spread(bias[k])
        for c in range(0, n, LANES):
            store(x, k * n + c, load(x, k * n + c) + load(other, k * n + c) + more)


@reordered
def _placed(x: Any, position: Any) -> Any:
    """Return contexts with the vectors of their places (FedCAR Eq. 10)."""
    (d, n), length = x.shape, position.shape[0]
    z = np.empty((d, n), F)
    for k in range(d):
        for i in range(length):
            own = spread(position[i, k])
            for c in range(k * n + i * LANES, k * n + n, length * LANES):
                store(z, c, load(x, c) + own)
    return z


@reordered
def encode(layers: Any, x: Any, there: Any) -> Any:
    """Pass contexts through a client's encoder (FedCAR Eq. 11)."""
    d = x.shape[0]
    z = _placed(x, layers.position)
    both = np.dot(layers.pair.T, z)
    share = meet(z, 0, both, 0, d, there.shape[0])
    soften(share, there, F(1) / np.sqrt(F(d)))
    first = z.copy()
    mix(share, False, both, d, first, 0, d)
    first_scale = _normalise(first)
    inner = np.dot(layers.wide.T, first)
    _biased(inner, layers.wide_bias)
    hidden = np.dot(layers.narrow.T, inner)
    _joined(hidden, first, layers.narrow_bias)
    return Passed(z, both, share, first, first_scale, inner, hidden, _normalise(hidden))


@reordered
def _more(out: Any, x: Any) -> None:
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[i, k] += x[i, k]


@reordered
def _sums(x: Any, places: int) -> Any:
    """Return the sums over contexts of what is in each of their places, [rows, places]."""
    (d, n), out = x.shape, np.empty((x.shape[0], places), F)
    for k in range(d):
        for i in range(places):
            along = spread(F(0))
            for c in range(k * n + i * LANES, k * n + n, places * LANES):
                along = along + load(x, c)
            out[k, i] = total(along)
    return out


@reordered
def _without(gradient: Any, inner: Any) -> None:
    zero = spread(F(0))
    for c in range(0, inner.size, LANES):
        store(gradient, c, where_not_above(load(inner, c), zero, zero, load(gradient, c)))


@reordered
def back(layers: Any, made: Any, g: Any, rows: bool, out: Any, by_pair: Any, a: int) -> None:
    """Add a client's gradients to `out` and `by_pair`, from that of `hidden`; `g` may become that of `rows`."""
    (d, n), (groups, length, _, _) = g.shape, made.share.shape
    _normalise_back(g, made.hidden, made.hidden_scale)
    _more(out.narrow_bias[a].reshape(d, 1), _sums(g, 1))
    _more(out.narrow[a], np.dot(made.inner, g.T))
    inside = np.dot(layers.narrow, g)
    _without(inside, made.inner)
    _more(out.wide_bias[a].reshape(-1, 1), _sums(inside, 1))
    _more(out.wide[a], np.dot(made.first, inside.T))
    _more(g, np.dot(layers.wide, inside))
    _normalise_back(g, made.first, made.first_scale)
    by_both = np.zeros((2 * d, n), F)
    mix(made.share, True, g, 0, by_both, d, d)
    logits = by_logits(made.share, meet(made.both, d, g, 0, d, groups), F(1) / np.sqrt(F(d)))
    mix(logits, False, made.z, 0, by_both, 0, d)
    mix(logits, True, made.both, 0, g, 0, d)
    _more(by_pair[:, :d], np.dot(made.z, by_both[:d].T))  # of both at once it takes OpenBLAS longer
    _more(by_pair[:, d:], np.dot(made.z, by_both[d:].T))
    if rows:
        _more(g, np.dot(layers.pair, by_both))
        by_position = _sums(g, length)
    else:
        by_position = _sums(g, length) + np.dot(layers.pair, _sums(by_both, length))
    _more(out.position[a], by_position.T)


@reordered
def parted(by_pair: Any, tensors: Any, out: Any, a: int) -> None:
    """Turn the gradient of query x key' beside the value into those of the three."""
    d = by_pair.shape[0]
    by_meet = by_pair[:, :d].copy()
    out.query[a] = np.dot(by_meet, tensors.key[a])
    out.key[a] = np.dot(by_meet.T, tensors.query[a])
    out.value[a] = by_pair[:, d:]
