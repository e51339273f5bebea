"""This draws a client's examples: its positives, keyed negatives, and the order in which batches take them.

Everything is a function of (seed, purpose, round, epoch, client, index), so one client's examples are the same whether
it is drawn alone, in a shard of ten or on another worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from edge import random_streams as purposes
from edge.ragged import Ragged
from privacy import keyed
from privacy.errors import InputError

DRAW_BITS = 24  # of an example's place in its client's order; equal ones stay in the order they were drawn
BITMAP_LIMIT = 1 << 26  # clients x items of one byte a cell; above it a sorted list is searched
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """A selection says which examples a phase of local work learns from, and what is kept together.

    `pairs`: every positive comes with the negatives drawn for it, so that a loss can compare them. `context`: so many
    items that the client had just before a positive come with it and its negatives. `part`: "all" of a client's
    positives, or the "support" or "query" set of a cut that is drawn anew each round; `support` is the support set's
    share, rounded up. Part "whole" is every positive at once: one batch however many there are, without negatives.
    `summed`: every example counts whole, so that a batch's loss is the sum over its examples and not their mean.
    """

    pairs: bool = False
    part: Literal["all", "support", "query", "whole"] = "all"
    support: float = 0.5
    context: int = 0
    summed: bool = False

    def __post_init__(self) -> None:
        if self.context and not self.pairs:
            raise ValueError("a context belongs to a positive and its negatives: ask for pairs")
        if self.pairs and self.part == "whole":
            raise ValueError("the whole has no negatives, so there is nothing to pair its positives with")
        if self.summed and self.pairs:
            raise ValueError("the loss of pairs is a mean over positives: it is not summed")


EVERYTHING = Selection()


@dataclass(frozen=True)
class Examples:
    """These are the examples of a shard's clients for one epoch, client after client, in batch order.

    `items` int32 [N] catalogue numbers, `label` float32 [N], `counts` int64 [C]. Examples come in groups of `group`,
    which no batch parts: 1, or a positive and its negatives after it; `whole`: no batch parts a client's at all.
    `context` int32 [groups, L]: items that the client had before each group's positive, the newest last; -1 where it
    had none (None: nobody asked for them). `summed`: as in `Selection`.
    """

    items: npt.NDArray[np.int32]
    label: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]
    group: int = 1
    context: npt.NDArray[np.int32] | None = None
    whole: bool = False
    summed: bool = False

    def batch(self, batch_size: int) -> int:
        """Return the number of examples of a full batch: as many whole groups as fit, at least one."""
        if self.whole:
            return max(int(self.counts.max(initial=0)), 1)
        return max(batch_size // self.group, 1) * self.group


def segments(counts: Ints) -> tuple[Ints, Ints]:
    """Return, for rows of the given lengths laid end to end, which row each entry is in, and its place within the row.

    >>> row, place = segments(np.array([2, 0, 3]))
    >>> row.tolist(), place.tolist()
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    """
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


def before(rows: Ragged, at: Ints, length: int) -> npt.NDArray[np.int32]:
    """Return the `length` values before each of the places `at` in its own row, the nearest last; -1 for none.

    >>> before(Ragged.from_lists([[5, 6, 7], [8, 9]]), np.array([2, 3, 4]), 2).tolist()
    [[5, 6], [-1, -1], [-1, 8]]
    """
    wanted = at[:, None] + np.arange(-length, 0)
    start = rows.offsets[np.searchsorted(rows.offsets, at, side="right") - 1]
    found = rows.values[np.maximum(wanted, 0)] if len(rows.values) else wanted
    return np.where(wanted >= start[:, None], found, -1).astype(np.int32)


def newest(rows: Ragged, length: int) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Return each row's last value with the `length` before it, [rows, 1 + length], and which of these there are.

    Where there is none stands the last value again, of empty rows 0; `there` [rows, length] is 0.

    >>> newest(Ragged.from_lists([[5, 6, 7], [8], []]), 2)[0].tolist()
    [[7, 5, 6], [8, 8, 8], [0, 0, 0]]
    """
    some = np.flatnonzero(rows.counts)
    found, there = np.zeros((len(rows), 1 + length), np.int64), np.zeros((len(rows), length), np.float32)
    last = rows.offsets[1:][some] - 1
    found[some] = rows.values[last][:, None]
    context = before(rows, last, length)
    found[some, 1:] = np.where(context >= 0, context, found[some, :1])
    there[some] = context >= 0
    return found, there


class Membership:
    """This says which (client, item) pairs are among the shard's positives. Exact for any catalogue size."""

    def __init__(self, row: Ints, items: npt.NDArray[np.integer], clients: int, catalogue: int):
        self.catalogue = catalogue
        self.bitmap: npt.NDArray[np.bool_] | None = None
        codes = row * catalogue + items
        if clients * catalogue <= BITMAP_LIMIT:
            self.bitmap = np.zeros(clients * catalogue, dtype=np.bool_)
            self.bitmap[codes] = True
        else:
            self.codes = np.sort(codes)

    def __call__(self, row: Ints, items: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        codes = row * self.catalogue + items
        if self.bitmap is not None:
            return self.bitmap[codes]
        place = np.searchsorted(self.codes, codes)
        return self.codes[np.minimum(place, len(self.codes) - 1)] == codes


def draw_negatives(
    pool: npt.NDArray[Any], keys: npt.NDArray[np.uint64], row: Ints, index: Ints, seen: Membership
) -> npt.NDArray[np.int32]:
    """Draw items [N] uniformly over the pool, keyed by row and `index`; one that was seen is drawn again."""
    drawn: npt.NDArray[np.int32] = pool[keyed.integers(keys[row], index, len(pool))]
    attempt, unfit = 0, np.flatnonzero(seen(row, drawn)) if len(drawn) else row
    while len(unfit):
        attempt += 1
        again = keyed.bits(keys[row[unfit]], np.uint64(attempt) << np.uint64(32))
        drawn[unfit] = pool[keyed.integers(again, index[unfit], len(pool))]
        unfit = unfit[seen(row[unfit], drawn[unfit])]
    return drawn


@dataclass(eq=False)
class Sampler:
    """The sampler draws the examples of any clients from their positives.

    `train`: positives of every client, in the order in which it had them. `pool`: items that may be negatives.
    `catalogue`: number of items in all. `ids` are the clients' numbers, which key their draws, where they are not the
    rows of `train` (a device: its own). `avoid`: items of each client that are no negatives of it either.
    """

    train: Ragged
    pool: npt.NDArray[np.integer]
    catalogue: int
    negatives: int
    batch_size: int
    seed: int
    ids: Ints | None = None
    avoid: Ragged | None = None

    def __post_init__(self) -> None:
        owned = self.train.counts if self.avoid is None else self.train.counts + self.avoid.counts
        full = np.flatnonzero(owned >= len(self.pool)) if self.negatives else np.empty(0)
        if len(full):
            raise InputError(
                f"client {full[0]} has {owned[full[0]]} positives of {len(self.pool)} items, so no negative can be "
                "drawn for it; use a larger catalogue or set negatives=0"
            )
        self.pool = np.asarray(self.pool, np.int32)

    def _keys(self, purpose: str, path: tuple[int, ...], clients: Ints) -> npt.NDArray[np.uint64]:
        return keyed.fold(keyed.key(self.seed, purpose, *path), clients if self.ids is None else self.ids[clients])

    def steps(self, clients: Ints, which: Selection = EVERYTHING) -> Ints:
        """Return the optimiser steps of one epoch of these clients."""
        counts = self.counts(clients, which)
        if which.part == "whole":
            return np.minimum(counts, 1)
        if which.pairs:
            return -(-counts // max(self.batch_size // (1 + self.negatives), 1))
        return -(-counts * (1 + self.negatives) // self.batch_size)

    def counts(self, clients: Ints, which: Selection = EVERYTHING) -> Ints:
        """Count the positives of these clients that an epoch has; whoever has more has no fewer of a part."""
        whole = self.train.counts[clients]
        if which.part in ("all", "whole"):
            return whole
        support = np.ceil(whole * which.support).astype(np.int64)
        return support if which.part == "support" else whole - support

    def examples(self, clients: Ints, which: Selection = EVERYTHING) -> Ints:
        """Count the examples of these clients that an epoch has, negatives among them."""
        return self.counts(clients, which) * (1 if which.part == "whole" else 1 + self.negatives)

    def positives(self, clients: Ints, which: Selection, *path: int) -> Ragged:
        """Return the positives of these clients that an epoch of a round is about, in the order they were had."""
        whole = self.train.take(clients)
        if which.part in ("all", "whole"):
            return whole
        at = self._places(clients, whole, which, path)
        return Ragged(whole.values[at], np.searchsorted(at, whole.offsets))

    def _places(self, clients: Ints, whole: Ragged, which: Selection, path: tuple[int, ...]) -> Ints:
        """Return which values of `whole` an epoch is about; the cut of a round follows from seed, round and client."""
        if which.part == "all":
            return np.arange(len(whole.values))
        row, place = segments(whole.counts)
        draws = keyed.bits(self._keys(purposes.SUPPORT, path[:1], clients)[row], place)
        order = np.lexsort((draws, row))
        chosen = np.empty(len(row), np.bool_)
        chosen[order] = place < self.counts(clients, replace(which, part="support"))[row]
        return np.flatnonzero(chosen if which.part == "support" else ~chosen)

    def epoch(self, clients: Ints, purpose: str, *path: int, which: Selection = EVERYTHING) -> Examples:
        """Draw one epoch: every positive once with `negatives` fresh negatives (the same for any shard)."""
        if which.summed:
            whole = self.epoch(clients, purpose, *path, which=replace(which, summed=False))
            return replace(whole, summed=True)
        if which != EVERYTHING:
            return self._selected(clients, purpose, path, which)
        positives = self.train.take(clients)
        wanted = positives.counts * self.negatives
        counts = positives.counts + wanted
        start = np.cumsum(counts) - counts
        items = np.empty(counts.sum(), np.int32)
        label = np.zeros(len(items), np.float32)
        at = np.repeat(start - positives.offsets[:-1], positives.counts) + np.arange(len(positives.values))
        items[at] = positives.values
        label[at] = 1.0
        row, index = segments(wanted)
        drawn = self._negatives(clients, row, index, self._seen(clients, positives), purpose, *path)
        items[np.repeat(start + positives.counts, wanted) + index] = drawn
        return self._shuffled(clients, Examples(items, label, counts), purpose, *path)

    def _selected(self, clients: Ints, purpose: str, path: tuple[int, ...], which: Selection) -> Examples:
        """Draw one epoch of a part, a positive's negatives after it; of pairs whole groups are put in order."""
        whole, positives = self.train.take(clients), self.counts(clients, which)
        if which.part == "whole":
            items = whole.values.astype(np.int32)
            return Examples(items, np.ones(len(items), np.float32), positives, whole=True)
        at = self._places(clients, whole, which, path)
        seen = self._seen(clients, whole)
        row, index = segments(positives * self.negatives)
        drawn = self._negatives(clients, row, index, seen, purpose, *path).reshape(len(at), self.negatives)
        group = 1 + self.negatives
        items = np.concatenate([whole.values[at].astype(np.int32)[:, None], drawn], axis=1)
        label = np.zeros(items.shape, np.float32)
        label[:, 0] = 1.0
        if which.pairs:
            order = self._order(clients, positives, purpose, path)
            context = before(whole, at[order], which.context) if which.context else None
            return Examples(items[order].ravel(), label[order].ravel(), positives * group, group, context)
        return self._shuffled(clients, Examples(items.ravel(), label.ravel(), positives * group), purpose, *path)

    def _seen(self, clients: Ints, positives: Ragged) -> Membership:
        row, items = positives.rows, positives.values
        if self.avoid is not None:
            more = self.avoid.take(clients)
            row, items = np.concatenate([row, more.rows]), np.concatenate([items, more.values])
        return Membership(row, items, len(clients), self.catalogue)

    def _order(self, clients: Ints, counts: Ints, purpose: str, path: tuple[int, ...]) -> Ints:
        row, place = segments(counts)
        draws = keyed.bits(self._keys(purposes.order(purpose), path, clients)[row], place)
        return np.lexsort((place, draws, row))

    def _negatives(
        self, clients: Ints, row: Ints, index: Ints, seen: Membership, purpose: str, *path: int
    ) -> npt.NDArray[np.int32]:
        keys = self._keys(purposes.negatives(purpose), path, clients)
        return draw_negatives(self.pool, keys, row, index, seen)

    def _shuffled(self, clients: Ints, examples: Examples, purpose: str, *path: int) -> Examples:
        """Return the keyed order of the examples of clients with more than one batch; one batch has no order.

        (client, draw, place) is packed into one number, which sorts faster than an order is found.
        """
        long = np.flatnonzero(examples.counts > self.batch_size)
        if not len(long):
            return examples
        row, place = segments(examples.counts[long])
        bits = int(place.max()).bit_length()
        if len(long).bit_length() + DRAW_BITS + bits > 64:
            raise ValueError(f"{len(long)} clients of up to {place.max() + 1} examples are too many for one call")
        keys = self._keys(purposes.order(purpose), path, clients[long])
        packed = keyed.bits(keys[row], place) >> np.uint64(64 - DRAW_BITS) << np.uint64(bits)
        packed |= row.astype(np.uint64) << np.uint64(DRAW_BITS + bits)
        packed |= place.astype(np.uint64)
        packed.sort()
        start = np.repeat((np.cumsum(examples.counts) - examples.counts)[long], examples.counts[long])
        at, order = start + place, start + (packed & np.uint64((1 << bits) - 1)).astype(np.int64)
        items, label = examples.items.copy(), examples.label.copy()
        items[at], label[at] = examples.items[order], examples.label[order]
        return Examples(items, label, examples.counts)


P = TypeVar("P")


def turns(phases: Iterable[P]) -> list[list[P]]:
    """Return phases in order, whether a program has them or a bundle, those that take turns step by step together.

    Raises `ValueError` for a phase that alternates with one of other draws, epochs or time.
    """
    draws, alternates = attrgetter("purpose", "epochs", "when", "which"), attrgetter("alternates")
    out: list[list[P]] = []
    for phase in phases:
        if not alternates(phase):
            out.append([phase])
        elif not out or any(draws(other) != draws(phase) for other in out[-1]):
            name = attrgetter("name")(phase)
            raise ValueError(f"phase '{name}' alternates, but not with a phase of the same draws and epochs")
        else:
            out[-1].append(phase)
    return out
