"""Clients of a form are trained in one compiled call, each while it is in cache, from its draws to the shard's sum.

Releases equal those of `engine.aggregate.release`, in the order of the shard; contract tests hold all of it to the
vectorised executor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import compiled
from edgefr.engine.compiled.kernel_draws import steps_of
from edgefr.engine.compiled.kernel_training import train
from privacy.clip import SMALLEST_FACTOR, TARGET, UNTOUCHED

F = np.float32


@compiled
def norm_of(rows: int, l1: bool, by_width: Any, room: Any) -> float:
    """Return the norm of a client's changes; rows that no step moved become zeros."""
    d = by_width.shape[0]
    for k in range(d):
        by_width[k] = 0
    for r in range(rows):
        if not room.moved[r]:
            for k in range(d):
                room.change[r, k] = 0
        elif l1:
            for k in range(d):
                by_width[k] += abs(np.float64(room.change[r, k]))
        else:
            for k in range(d):
                by_width[k] += np.float64(room.change[r, k]) * np.float64(room.change[r, k])
    total = 0.0
    for k in range(d):
        total += by_width[k]
    return total if l1 else np.sqrt(total)


@compiled
def add(rows: int, factor: float, weight: float, step: float, slots: int, out: Any, room: Any) -> int:
    """Add a client's changes, clipped by `factor` and rounded toward zero, to the sums; return the rows summed."""
    slot, found, sums = out.slot, out.found, out.sums
    d = sums.shape[1]
    for r in range(rows):
        i = room.item[r]
        if slot[i] == 0:
            found[slots] = i
            for k in range(d):
                sums[slots, k] = 0
            slots += 1
            slot[i] = slots
        s = slot[i] - 1
        if step > 0:
            for k in range(d):
                sums[s, k] += np.trunc(np.float64(room.change[r, k]) * (factor / step)) * step * weight
        else:
            for k in range(d):
                sums[s, k] += np.float64(room.change[r, k]) * (factor * weight)
    return slots


@compiled
def factor_of(norm: float, clip: float) -> float:
    """Return the factor of a client's changes, as `privacy.clip.clip_factors`; a clip of 0 is none."""
    if clip > 0 and norm > clip * UNTOUCHED:
        factor = clip * TARGET / norm
        return factor if factor >= SMALLEST_FACTOR else 0.0
    return 1.0


@compiled
def join(slots: int, out: Any, joined: int, total: Any) -> int:
    """Add a shard's sums to those of the shards before it, and forget the shard's rows; return the rows summed."""
    for s in range(slots):
        i = out.found[s]
        out.slot[i] = 0
        if total.slot[i] == 0:
            total.found[joined] = i
            for k in range(total.sums.shape[1]):
                total.sums[joined, k] = 0
            joined += 1
            total.slot[i] = joined
        place = total.slot[i] - 1
        for k in range(total.sums.shape[1]):
            total.sums[place, k] += out.sums[s, k]
    return joined


@compiled
def run(
    ends: Any, lists: Any, draws: Any, phases: Any, tensors: Any, terms: Any, room: Any, out: Any, total: Any
) -> int:
    """Train clients one after another, and add up their releases, those of a shard before the next. Return the rows.

    Shards end before the clients `ends`. A shard's sums are in `out`, and those of several in `total`.
    """
    norms, d = out.norms, tensors.rows.shape[1]
    w, by_w, by_width = np.empty(d, F), np.empty(d, F), np.empty(d, np.float64)
    slots = joined = 0
    for s in range(len(ends)):
        slots = 0
        for c in range(ends[s - 1] if s else 0, ends[s]):
            rows, steps = steps_of(c, lists, draws, out.seen, room)
            groups = (lists.had_ends[c + 1] - lists.had_ends[c]) * (1 + draws.each) // draws.groups
            for r in range(rows):
                room.moved[r] = False
            train(c, steps, draws, groups, phases, tensors, w, by_w, room)
            if not terms.leaves:
                continue
            norm = norm_of(rows, terms.l1, by_width, room)
            norms[c] = norm
            if not norm <= terms.largest:  # so of what is no number
                continue
            factor = factor_of(norm, terms.clip) * terms.share
            slots = add(rows, factor, terms.sizes[c], terms.step, slots, out, room)
        if len(ends) > 1:
            joined = join(slots, out, joined, total)
    if len(ends) > 1:
        for s in range(joined):
            total.slot[total.found[s]] = 0
        return joined
    for s in range(slots):
        out.slot[out.found[s]] = 0
    return slots
