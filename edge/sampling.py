"""A client's examples: its positives, keyed negatives, and the order in which batches take them.

Everything is a function of (seed, purpose, round, epoch, client, index), so one client's examples are the same whether
it is drawn alone, in a shard of ten or on another worker. Owns the draws; does not own training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from privacy import keyed
from privacy.errors import InputError

DRAW_BITS = 24
"""Random bits that decide an example's place in its client's order; equal ones stay in the order they were drawn."""

BITMAP_LIMIT = 1 << 26
"""Largest clients x items table of one byte per cell used to look an item up; above it a sorted list is searched."""


@dataclass(frozen=True)
class Examples:
    """The examples of a shard's clients for one epoch, client after client, in batch order.

    `items` int32 [N] catalogue numbers, `label` float32 [N], `counts` int64 [C].
    """

    items: npt.NDArray[np.int32]
    label: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]


def segments(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For rows of the given lengths laid end to end: which row each entry is in, and its place within the row.

    >>> row, place = segments(np.array([2, 0, 3]))
    >>> row.tolist(), place.tolist()
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    """
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


class Membership:
    """Which (client, item) pairs are among the shard's positives. Exact for any catalogue size."""

    def __init__(self, row: npt.NDArray[np.int64], items: npt.NDArray[np.integer], clients: int, catalogue: int):
        self.catalogue = catalogue
        self.bitmap: npt.NDArray[np.bool_] | None = None
        codes = row * catalogue + items
        if clients * catalogue <= BITMAP_LIMIT:
            self.bitmap = np.zeros(clients * catalogue, dtype=np.bool_)
            self.bitmap[codes] = True
        else:
            self.codes = np.sort(codes)

    def __call__(self, row: npt.NDArray[np.int64], items: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        codes = row * self.catalogue + items
        if self.bitmap is not None:
            return self.bitmap[codes]
        place = np.searchsorted(self.codes, codes)
        return self.codes[np.minimum(place, len(self.codes) - 1)] == codes


class Sampler:
    """Draws the examples of any clients from their positives.

    `train`: positives of every client. `pool`: items that may be negatives. `catalogue`: number of items in all. `ids`
    are the clients' numbers, which key their draws, where they are not the rows of `train` (a device: its own).
    """

    def __init__(
        self,
        train: Ragged,
        pool: npt.NDArray[np.integer],
        catalogue: int,
        negatives: int,
        batch_size: int,
        seed: int,
        ids: npt.NDArray[np.int64] | None = None,
    ):
        full = np.flatnonzero(train.counts >= len(pool)) if negatives else np.empty(0)
        if len(full):
            raise InputError(
                f"client {full[0]} has {train.counts[full[0]]} positives of {len(pool)} items, so no negative can be "
                "drawn for it; use a larger catalogue or set negatives=0"
            )
        self.train, self.pool, self.catalogue = train, np.asarray(pool, np.int32), catalogue
        self.negatives, self.batch_size, self.seed, self.ids = negatives, batch_size, seed, ids

    def _keys(self, purpose: str, path: tuple[int, ...], clients: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return keyed.fold(keyed.key(self.seed, purpose, *path), clients if self.ids is None else self.ids[clients])

    def steps(self, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Optimiser steps of one epoch of these clients."""
        return -(-self.train.counts[clients] * (1 + self.negatives) // self.batch_size)

    def epoch(self, clients: npt.NDArray[np.int64], purpose: str, *path: int) -> Examples:
        """The examples of one epoch: every positive once with `negatives` fresh negatives (the same for any shard)."""
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
        seen = Membership(positives.rows, positives.values, len(clients), self.catalogue)
        drawn = self._negatives(clients, row, index, seen, purpose, *path)
        items[np.repeat(start + positives.counts, wanted) + index] = drawn
        return self._shuffled(clients, Examples(items, label, counts), purpose, *path)

    def _negatives(
        self,
        clients: npt.NDArray[np.int64],
        row: npt.NDArray[np.int64],
        index: npt.NDArray[np.int64],
        seen: Membership,
        purpose: str,
        *path: int,
    ) -> npt.NDArray[np.int32]:
        """Uniform over the pool without the client's positives; a draw that hits one is drawn again."""
        keys = self._keys(f"{purpose} negatives", path, clients)
        drawn = self.pool[keyed.integers(keys[row], index, len(self.pool))]
        open_ = np.flatnonzero(seen(row, drawn)) if len(drawn) else row
        attempt = 0
        while len(open_):
            attempt += 1
            again = keyed.bits(keys[row[open_]], np.uint64(attempt) << np.uint64(32))
            drawn[open_] = self.pool[keyed.integers(again, index[open_], len(self.pool))]
            open_ = open_[seen(row[open_], drawn[open_])]
        return drawn

    def _shuffled(self, clients: npt.NDArray[np.int64], examples: Examples, purpose: str, *path: int) -> Examples:
        """Keyed order of the examples of clients with more than one batch; one batch has no order.

        (client, draw, place) is packed into one number: plain numbers are sorted several times faster than an order
        of them is found.
        """
        long = np.flatnonzero(examples.counts > self.batch_size)
        if not len(long):
            return examples
        row, place = segments(examples.counts[long])
        bits = int(place.max()).bit_length()
        if len(long).bit_length() + DRAW_BITS + bits > 64:
            raise ValueError(f"{len(long)} clients of up to {place.max() + 1} examples are too many for one call")
        keys = self._keys(f"{purpose} order", path, clients[long])
        packed = keyed.bits(keys[row], place) >> np.uint64(64 - DRAW_BITS) << np.uint64(bits)
        packed |= row.astype(np.uint64) << np.uint64(DRAW_BITS + bits)
        packed |= place.astype(np.uint64)
        packed.sort()
        start = np.repeat((np.cumsum(examples.counts) - examples.counts)[long], examples.counts[long])
        at, order = start + place, start + (packed & np.uint64((1 << bits) - 1)).astype(np.int64)
        items, label = examples.items.copy(), examples.label.copy()
        items[at], label[at] = examples.items[order], examples.label[order]
        return Examples(items, label, examples.counts)
