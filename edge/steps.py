"""The epochs of a shard become optimiser steps: every (client, item) of a step once, its appearances as weight.

An item that was drawn twice as a negative of the same batch has the same loss twice, so one example of double weight is
the same sum, and no two examples of a step read the same row of a client. An item that a step reads as context alone is
an entry of weight 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.replay import Replay
from edge.sampling import Examples, segments

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.unsignedinteger[Any]]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Pairs:
    """These are the entries of steps that are to be compared: positives with the negatives that were drawn for them.

    `positive` [P] and `negative` [P, k] number entries of all steps; `share` [P] is 1 / positives of the client's
    batch. Positives ascend by step, then client slot: step s owns `bounds[s]` to `bounds[s + 1]`, `lengths` [S, C]
    counts each client's. `context` [P, L] are the entries of what the client had before a positive, newest last, where
    `there` [P, L] is 1; elsewhere it had nothing, and the number is the positive's own (None: nobody asked for it).
    """

    positive: Ints
    negative: Ints
    share: Floats
    bounds: Ints
    lengths: Ints
    context: Ints | None = None
    there: Floats | None = None


@dataclass(frozen=True)
class _Groups:
    """These are the codes of every group's examples without labels, [groups, 1 + k], its positive first.

    `context` [groups, L] are those of what it reads: where `there` [groups, L] is false, the positive's.
    """

    examples: Codes
    context: Codes | None = None
    there: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Steps:
    """These are the steps of one or more epochs end to end; entries ascend by step, then client slot, then item.

    `items`, `label`, `weight`, `row` are [N]: step s owns entries `bounds[s]` to `bounds[s + 1]`. A weight is the
    example's share of its client's batch, so the weights of a client sum to 1 (and to more with a replay); of summed
    examples it is how often the item was drawn. `lengths` [S, C] counts the entries of each client; clients that have
    some are a prefix. The (slot, item) pairs of all steps are numbered 0..R-1 in their order: `row` is each entry's
    pair, `slots` and `touched` [R] say which pair it is.
    """

    items: Ints
    label: Floats
    weight: Floats
    row: Ints
    bounds: Ints
    lengths: Ints
    slots: Ints
    touched: Ints
    pairs: Pairs | None = None


@dataclass(frozen=True)
class Packing:
    """(slot, item, step, label) in one unsigned number: plain numbers sort several times faster than orders."""

    item: int
    step: int
    dtype: type[np.unsignedinteger[Any]]

    @classmethod
    def of(cls, clients: int, catalogue: int, steps: int) -> Packing:
        """Make room for all slots, items and steps; raises OverflowError beyond 64 bits."""
        slot, item, step = (max(n - 1, 1).bit_length() for n in (clients, catalogue, steps))
        if slot + item + step + 1 > 64:
            raise OverflowError(f"{clients} clients, {catalogue} items and {steps} steps do not fit one number")
        return cls(item, step, np.uint32 if slot + item + step + 1 <= 32 else np.uint64)

    def pack(self, slot: Ints, items: npt.NDArray[np.integer], step: Ints) -> Codes:
        """Make codes with label 0."""
        high = (slot.astype(self.dtype) << self.dtype(self.item)) | items.astype(self.dtype)
        return (high << self.dtype(self.step + 1)) | (step.astype(self.dtype) << self.dtype(1))

    def pair(self, codes: Codes) -> Codes:
        """Return (slot, item) of each code, in one number."""
        return codes >> self.dtype(self.step + 1)

    def slot_of(self, codes: Codes) -> Ints:
        return (codes >> self.dtype(self.item + self.step + 1)).astype(np.int64)

    def item_of(self, codes: Codes) -> Ints:
        return (self.pair(codes) & self.dtype((1 << self.item) - 1)).astype(np.int64)

    def step_of(self, codes: Codes) -> Ints:
        return (codes >> self.dtype(1) & self.dtype((1 << self.step) - 1)).astype(np.int64)


def steps_of(epochs: Sequence[Examples], batch_size: int, catalogue: int, replay: Replay | None = None) -> Steps:
    """Make the steps of epochs of one shard, with its replay in every step.

    Clients must come by falling number of examples in every epoch: those active at a step are a prefix.
    """
    each = [int(-(-examples.counts.max(initial=0) // examples.batch(batch_size))) for examples in epochs]
    packing = Packing.of(len(epochs[0].counts), catalogue, sum(each))
    places = _places(epochs, batch_size)
    first = np.cumsum([0, *each]).tolist()
    codes = np.concatenate(
        [
            packing.pack(slot, examples.items, batch + start) | examples.label.astype(packing.dtype)
            for start, examples, (slot, batch) in zip(first, epochs, places, strict=False)
        ]
    )
    groups = _groups(packing, epochs, codes) if any(examples.group > 1 for examples in epochs) else None
    codes.sort()
    begin, times = _runs(codes)
    codes = codes[begin]
    sizes = np.concatenate(
        [
            np.clip(e.counts - np.arange(n)[:, None] * e.batch(batch_size), 0, e.batch(batch_size))
            for e, n in zip(epochs, each, strict=True)
        ]
    )  # examples of each batch
    step = packing.step_of(codes)
    summed = np.repeat([examples.summed for examples in epochs], each)[step]
    weight = (times / np.where(summed, 1, sizes[step, packing.slot_of(codes)])).astype(np.float32)
    label = (codes & packing.dtype(1)).astype(np.float32)
    codes &= ~packing.dtype(1)
    if replay is not None:
        codes, label, weight = _joined(packing, (codes, label, weight), replay, sizes > 0)
    if groups is not None and groups.context is not None:
        codes, label, weight = _with_read((codes, label, weight), groups.context)
    steps = _ordered(packing, codes, label, weight, sizes.shape)
    return steps if groups is None else replace(steps, pairs=_pairs(packing, codes, groups, sizes.shape))


def _places(epochs: Sequence[Examples], batch_size: int) -> list[tuple[Ints, Ints]]:
    """Return slot and batch of every example of each epoch; epochs of equal counts share them."""
    out: list[tuple[Ints, Ints]] = []
    for number, examples in enumerate(epochs):
        before = epochs[number - 1]
        alike = (before.group, before.whole) == (examples.group, examples.whole)
        if number and alike and np.array_equal(before.counts, examples.counts):
            out.append(out[-1])
            continue
        slot, place = segments(examples.counts)
        size = examples.batch(batch_size)
        out.append((slot, place // size if examples.counts.max(initial=0) > size else np.zeros(1, np.int64)))
    return out


def _groups(packing: Packing, epochs: Sequence[Examples], codes: Codes) -> _Groups:
    sizes = {(e.group, None if e.context is None else e.context.shape[1]) for e in epochs}
    if len(sizes) > 1:
        raise ValueError("phases with pairs and phases without draw for themselves: give them other `draws`")
    ((size, length),) = sizes
    examples = (codes & ~packing.dtype(1)).reshape(-1, size)
    if length is None:
        return _Groups(examples)
    items = np.concatenate([e.context for e in epochs if e.context is not None])
    positive = examples[:, :1]
    found = packing.pack(packing.slot_of(positive), np.maximum(items, 0), packing.step_of(positive))
    there = items >= 0
    return _Groups(examples, np.where(there, found, positive), there)


def _with_read(own: tuple[Codes, Floats, Floats], read: Codes) -> tuple[Codes, Floats, Floats]:
    """Return distinct codes, labels and weights with what is read beside them, which has weight and label 0."""
    codes = np.concatenate([own[0], read.ravel()])
    codes.sort()  # np.unique hashes whole numbers, which takes five times as long
    codes = codes[_runs(codes)[0]]
    place = np.searchsorted(codes, own[0])
    label, weight = np.zeros((2, len(codes)), np.float32)
    label[place], weight[place] = own[1], own[2]
    return codes, label, weight


def _pairs(packing: Packing, codes: Codes, groups: _Groups, shape: tuple[int, ...]) -> Pairs:
    """Return pairs [S, C] of groups, as numbers of the entries that the ascending distinct `codes` become."""
    number, clients = shape
    place = np.empty(len(codes), np.int64)  # of each code among the entries, which ascend by step first
    place[np.argsort(packing.step_of(codes).astype(np.min_scalar_type(max(number, 1))), kind="stable")] = np.arange(
        len(codes)
    )
    positive = groups.examples[:, 0]
    cell = packing.step_of(positive) * clients + packing.slot_of(positive)
    order = np.argsort(cell, kind="stable")
    found = place[np.searchsorted(codes, groups.examples[order])]
    lengths = np.bincount(cell, minlength=number * clients).reshape(number, clients)
    share = (1.0 / lengths.ravel()[cell[order]]).astype(np.float32)
    bounds = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    pairs = Pairs(found[:, 0], found[:, 1:], share, bounds, lengths)
    if groups.context is None or groups.there is None:
        return pairs
    context, there = place[np.searchsorted(codes, groups.context[order])], groups.there[order]
    return replace(pairs, context=context, there=there.astype(np.float32))


def _joined(
    packing: Packing, own: tuple[Codes, Floats, Floats], replay: Replay, active: npt.NDArray[np.bool_]
) -> tuple[Codes, Floats, Floats]:
    """Distinct codes, labels and weights of the clients' own examples and their replay, in every step they have [S, C].

    Cross-entropy is linear in the label, so weights w1, w2 and labels y1, y2 of one item are one example of weight
    w1 + w2 and label (w1 y1 + w2 y2) / (w1 + w2), whatever the score.
    """
    slot = replay.items.rows
    step, at = np.nonzero(active[:, slot])
    codes = np.concatenate([own[0], packing.pack(slot[at], replay.items.values[at], step)])
    label = np.concatenate([own[1], replay.label[at]])
    weight = np.concatenate([own[2], replay.weight[at]]).astype(np.float64)
    found, place = np.unique(codes, return_inverse=True)
    total = np.bincount(place, weight, minlength=len(found))
    share = np.bincount(place, weight * label, minlength=len(found)) / np.where(total > 0, total, 1.0)
    return found, share.astype(np.float32), total.astype(np.float32)


def _ordered(packing: Packing, codes: Codes, label: Floats, weight: Floats, shape: tuple[int, ...]) -> Steps:
    """Make steps [S, C] of distinct codes that ascend by (slot, item, step)."""
    number, clients = shape
    pairs = packing.pair(codes)
    first, times = _runs(pairs)
    slots, touched = packing.slot_of(codes[first]), packing.item_of(codes[first])
    row = np.repeat(np.arange(len(first)), times)
    cell = slots[row]
    if number > 1:
        step = packing.step_of(codes)
        order = np.argsort(step.astype(np.min_scalar_type(number)), kind="stable")
        row, label, weight, cell = row[order], label[order], weight[order], step * clients + cell
    lengths = np.bincount(cell, minlength=number * clients).reshape(number, clients)
    bounds = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    return Steps(touched[row], label, weight, row, bounds, lengths, slots, touched)


def _runs(ascending: Codes) -> tuple[Ints, Ints]:
    changes = np.empty(len(ascending), np.bool_)
    changes[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=changes[1:])
    first = np.flatnonzero(changes)
    times = np.empty(len(first), np.int64)
    np.subtract(first[1:], first[:-1], out=times[:-1])
    times[-1:] = len(ascending) - first[-1:]
    return first, times
