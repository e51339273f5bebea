"""A client's steps are drawn: those of `edge.sampling` and `edge.steps`, with its replay.

An item drawn twice in a batch is one entry of double weight; replay joins every batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import compiled

F, U, N = np.float32, np.uint64, np.uint32
WEYL, MIX_1, MIX_2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
AVOIDED, ROW = N(1 << 31), N((1 << 31) - 1)
"""Bits of what is known of an item: that it is no negative of the client, and its row's number plus one."""

FEW = 64
"""So many numbers are sorted by counting, for each, which are smaller: faster, since there is nothing to guess."""


@compiled
def _bits(key: Any, index: Any) -> Any:
    """Return the `index`-th 64 bits of a key, as `privacy.keyed.bits`."""
    x = (index + U(1)) * WEYL + key
    x = (x ^ (x >> U(30))) * MIX_1
    x = (x ^ (x >> U(27))) * MIX_2
    return x ^ (x >> U(31))


@compiled
def _order(key: Any, n: int, wide: bool, room: Any) -> None:
    """Put the numbers 0..n-1 into the order of their draws, as `Sampler`: of 24 bits, or of all where groups stay.

    Sorts by 40 of these bits; ties are decided by the others, one by one.
    """
    code, spare, passes = room.code, room.spare, 5 if wide else 3
    for j in range(n):
        spare[j] = (_bits(key, U(j)) >> U(64 - 8 * passes) << U(24)) | U(j)
    for x in range(passes if n > FEW else 0):
        ends = room.ends
        ends[:] = 0
        for j in range(n):
            ends[(spare[j] >> U(24 + 8 * x)) & U(255)] += 1
        at = 0
        for b in range(256):
            at, ends[b] = at + ends[b], at
        for j in range(n):
            b = (spare[j] >> U(24 + 8 * x)) & U(255)
            code[ends[b]] = spare[j]
            ends[b] += 1
        for j in range(n if x < passes - 1 else 0):
            spare[j] = code[j]
    for j in range(n if n <= FEW else 0):
        before = 0
        for i in range(n):
            before += spare[i] < spare[j]
        code[before] = spare[j]
    for j in range(1, n if wide else 0):
        i, x = j, code[j]
        while i > 0 and code[i - 1] >> U(24) == x >> U(24):
            if _bits(key, code[i - 1] & U(0xFFFFFF)) <= _bits(key, x & U(0xFFFFFF)):
                break
            code[i] = code[i - 1]
            i -= 1
        code[i] = x


@compiled
def numbered(seen: Any, item: Any, i: Any, rows: Any) -> Any:
    """Return how many rows there are once item `i` has one. It has no branch, which would be mispredicted."""
    known = seen[i]
    new = N(known & ROW == N(0))
    item[rows] = i
    seen[i] = known | new * (N(rows) + N(1))
    return rows + new


@compiled
def _entry(r: Any, n: Any, room: Any) -> Any:
    known = room.place[r]
    new = N(known == N(0))
    room.row[n], room.weight[n], room.target[n] = r, 0, 0
    room.place[r] = known | new * (N(n) + N(1))
    return n + new


@compiled
def steps_of(c: int, lists: Any, draws: Any, seen: Any, room: Any) -> Any:
    """Draw a client's steps; return the numbers of rows and of steps. `seen` [items] is zeros, and left so."""
    first, last = lists.had_ends[c], lists.had_ends[c + 1]
    again, done = lists.replays_ends[c], lists.replays_ends[c + 1]
    positives, each, group = last - first, draws.each, draws.groups
    rows, bound, stride = 0, U(draws.pool.shape[0]), 1 + each if draws.mixed else 1
    for x in range(first, last):
        rows = numbered(seen, room.item, lists.had[x], rows)
    known = N(rows)
    for x in range(lists.avoids_ends[c], lists.avoids_ends[c + 1]):
        seen[lists.avoids[x]] |= AVOIDED
    for x in range(again, done):
        rows = numbered(seen, room.item, lists.replays[x], rows)
    total = positives * (1 + each) // group
    n, step = 0, 0
    room.bounds[0] = 0
    for e in range(draws.orders.shape[0]):
        for j in range(positives):
            room.example[j * stride] = (seen[lists.had[first + j]] & ROW) - N(1)
        key = _bits(draws.negatives[e], draws.numbers[c])
        for j in range(positives * each):
            i = draws.pool[(_bits(key, U(j)) >> U(32)) * bound >> U(32)]
            attempt = U(0)
            while seen[i] >= AVOIDED or seen[i] - N(1) < known:
                attempt += U(1)
                i = draws.pool[(_bits(_bits(key, attempt << U(32)), U(j)) >> U(32)) * bound >> U(32)]
            rows = numbered(seen, room.item, i, rows)
            at = j + j // each + 1 if draws.mixed else positives + j
            room.example[at] = seen[i] - N(1)
        if total > draws.batch:
            _order(_bits(draws.orders[e], draws.numbers[c]), total, group > 1, room)
        for start in range(0, total, draws.batch):
            stop, begin = min(start + draws.batch, total), n
            for g in range(start, stop):
                at = np.int64(room.code[g] & U(0xFFFFFF)) if total > draws.batch else g
                for x in range(group):
                    r = room.example[at * group + x]
                    n = _entry(r, n, room)
                    room.weight[room.place[r] - N(1)] += F(1)
                    if group > 1:
                        room.pair[(e * total + g) * group + x] = room.place[r] - N(1) - N(begin)
            size = F((stop - start) * group)
            for m in range(begin, n):
                room.weight[m] /= size
                room.target[m] = room.weight[m] if room.row[m] < known else F(0)
            for x in range(again, done):
                r = (seen[lists.replays[x]] & ROW) - N(1)
                n = _entry(r, n, room)
                m = room.place[r] - N(1)
                room.weight[m] += lists.weight[x]
                room.target[m] += lists.weight[x] * lists.label[x]  # F3CRec Eq. 5, 6: linear in the label
            for m in range(begin, n):
                room.place[room.row[m]] = 0
            step += 1
            room.bounds[step] = n
    for r in range(rows):
        seen[room.item[r]] = 0
    for x in range(lists.avoids_ends[c], lists.avoids_ends[c + 1]):
        seen[lists.avoids[x]] = 0
    return rows, step
