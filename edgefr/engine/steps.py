"""A shard's epoch as optimiser steps: every (client, item) of a step once, with its number of appearances as weight.

An item that was drawn twice as a negative of the same batch has the same loss twice, so one example of double weight is
the same sum, and no two examples of a step read the same row of a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgefr.engine.sampling import Examples, segments

if TYPE_CHECKING:
    from edgefr.engine.work import Replay

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
CELLS_PER_CODE = 16
"""Count codes in a table of up to this many cells per code; sort them when the table would be sparser."""


@dataclass(frozen=True)
class Step:
    """Examples of one step, client after client, each client's items ascending and distinct.

    `slot`, `items`, `label`, `weight` are [n]; `ends` [A] counts the examples of active clients 0..a together. A weight
    is the example's share of its client's batch, so the weights of a client sum to 1 (and to more with a replay).
    """

    slot: Ints
    items: Ints
    label: Floats
    weight: Floats
    ends: Ints


def distinct(codes: Ints, cells: int) -> tuple[Ints, Ints]:
    """Sorted distinct codes (all below `cells`) and how often each appears."""
    if cells <= CELLS_PER_CODE * len(codes):
        counts = np.bincount(codes, minlength=0)
        found = np.flatnonzero(counts)
        return found, counts[found]
    return np.unique(codes, return_counts=True)


def steps_of(examples: Examples, batch_size: int, catalogue: int) -> list[Step]:
    """The steps of an epoch. Clients must come by falling number of examples: those active at a step are a prefix."""
    clients = len(examples.counts)
    slot, place = segments(examples.counts)
    batch = place // batch_size
    number = int(-(-examples.counts.max(initial=0) // batch_size))
    codes = ((batch * clients + slot) * catalogue + examples.items) * 2 + examples.label.astype(np.int64)
    found, times = distinct(codes, number * clients * catalogue * 2)
    rest, label = np.divmod(found, 2)
    rest, items = np.divmod(rest, catalogue)
    batch, slot = np.divmod(rest, clients)
    bounds = np.searchsorted(batch, np.arange(number + 1))
    out = []
    for step in range(number):
        at = slice(bounds[step], bounds[step + 1])
        lengths = np.minimum(examples.counts - step * batch_size, batch_size)
        lengths = lengths[lengths > 0]
        ends = np.cumsum(np.bincount(slot[at], minlength=len(lengths)))
        weight = (times[at] / lengths[slot[at]]).astype(np.float32)
        out.append(Step(slot[at], items[at], label[at].astype(np.float32), weight, ends))
    return out


def joined(step: Step, replay: Replay, catalogue: int) -> Step:
    """A step with the replayed examples of its clients; an item that is in both becomes one example.

    Cross-entropy is linear in the label, so weights w1, w2 and labels y1, y2 are one example of weight w1 + w2 and
    label (w1 y1 + w2 y2) / (w1 + w2), whatever the score.
    """
    active = len(step.ends)
    slot, here = replay.items.rows, slice(0, int(replay.items.offsets[active]))  # clients of a step are a prefix
    codes = np.concatenate([step.slot * catalogue + step.items, slot[here] * catalogue + replay.items.values[here]])
    weight = np.concatenate([step.weight, replay.weight[here]]).astype(np.float64)
    label = np.concatenate([step.label, replay.label[here]])
    found, place = np.unique(codes, return_inverse=True)
    total = np.bincount(place, weight, minlength=len(found))
    share = np.bincount(place, weight * label, minlength=len(found)) / np.where(total > 0, total, 1.0)
    owner, items = np.divmod(found, catalogue)
    ends = np.cumsum(np.bincount(owner, minlength=active))
    return Step(owner, items, share.astype(np.float32), total.astype(np.float32), ends)
