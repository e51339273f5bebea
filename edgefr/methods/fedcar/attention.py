"""This is how vectors attend to others, compiled: of `LANES` contexts at once, each in a lane of its own.

n vectors of each of C contexts are a matrix [d, C x n]: group after group of `LANES` contexts, vector after vector of a
group, and the contexts of the group in their lanes. Shares and logits are [groups, I, J, LANES]: what vector i is to j.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import LANES, reordered
from cloud.compiled.lanes import exp, load, spread, store, where_above

F = np.float32

NOWHERE = F(-1e9)
"""The logit of a place without an item."""

NOTHING = F(1e-30)
"""What shares that are all 0 are divided by."""

FIVE = 5
"""Return the products [groups, I, J, LANES] of vectors i of `a` and j of `b`; they are `d` rows from `from_a`,

`from_b`.
"""


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
