"""A client's examples: its positives, keyed negatives, and the order in which batches take them.

Everything is a function of (seed, purpose, round, epoch, client, index), so one client's examples are the same whether
it is drawn alone, in a shard of ten or on another worker. Owns the draws; does not own training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Ragged
from privacy import keyed
from privacy.errors import InputError

BITMAP_LIMIT = 1 << 26
"""Largest clients x items table of one byte per cell used to look an item up; above it a sorted list is searched."""


@dataclass(frozen=True)
class Examples:
    """The examples of a shard's clients for one epoch, client after client, in batch order.

    `items` int64 [N] catalogue numbers, `label` float32 [N], `counts` int64 [C].
    """

    items: npt.NDArray[np.int64]
    label: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]


def segments(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For rows of the given lengths laid end to end: which row each entry is in, and its place within the row.

    >>> row, place = segments(np.array([2, 0, 3]))
    >>> row.tolist(), place.tolist()
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    """
    row = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return row, np.arange(len(row)) - starts[row]


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

    def __call__(self, row: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        codes = row * self.catalogue + items
        if self.bitmap is not None:
            return self.bitmap[codes]
        place = np.searchsorted(self.codes, codes)
        return self.codes[np.minimum(place, len(self.codes) - 1)] == codes


class Sampler:
    """Draws the examples of any clients from their positives.

    `train`: positives of every client. `pool`: items that may be negatives. `catalogue`: number of items in all.
    """

    def __init__(
        self,
        train: Ragged,
        pool: npt.NDArray[np.integer],
        catalogue: int,
        negatives: int,
        batch_size: int,
        seed: int,
    ):
        full = np.flatnonzero(train.counts >= len(pool)) if negatives else np.empty(0)
        if len(full):
            raise InputError(
                f"client {full[0]} has {train.counts[full[0]]} positives of {len(pool)} items, so no negative can be "
                "drawn for it; use a larger catalogue or set negatives=0"
            )
        self.train, self.pool, self.catalogue = train, np.asarray(pool, np.int64), catalogue
        self.negatives, self.batch_size, self.seed = negatives, batch_size, seed

    def steps(self, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Optimiser steps of one epoch of these clients."""
        return -(-self.train.counts[clients] * (1 + self.negatives) // self.batch_size)

    def epoch(self, clients: npt.NDArray[np.int64], purpose: str, *path: int) -> Examples:
        """The examples of one epoch: every positive once with `negatives` fresh negatives (the same for any shard)."""
        positives = self.train.take(clients)
        row, place = segments(positives.counts)
        items = positives.values.astype(np.int64)
        negative_row, negative = self._negatives(clients, row, items, positives.counts, purpose, *path)
        counts = positives.counts * (1 + self.negatives)
        starts = np.cumsum(counts) - counts
        out = np.empty(counts.sum(), np.int64)
        label = np.zeros(len(out), np.float32)
        at = starts[row] + place
        out[at] = items
        label[at] = 1.0
        within = segments(positives.counts * self.negatives)[1]
        out[(starts + positives.counts)[negative_row] + within] = negative
        return self._shuffled(clients, Examples(out, label, counts), purpose, *path)

    def _negatives(
        self,
        clients: npt.NDArray[np.int64],
        row: npt.NDArray[np.int64],
        items: npt.NDArray[np.int64],
        positives: npt.NDArray[np.int64],
        purpose: str,
        *path: int,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Uniform over the pool without the client's positives; a draw that hits one is drawn again."""
        negative_row, index = segments(positives * self.negatives)
        keys = keyed.fold(keyed.key(self.seed, f"{purpose} negatives", *path), clients)
        drawn = self.pool[keyed.integers(keys[negative_row], index, len(self.pool))]
        if not len(drawn):
            return negative_row, drawn
        seen = Membership(row, items, len(clients), self.catalogue)
        open_ = np.flatnonzero(seen(negative_row, drawn))
        attempt = 0
        while len(open_):
            attempt += 1
            again = keyed.bits(keys[negative_row[open_]], np.uint64(attempt) << np.uint64(32))
            drawn[open_] = self.pool[keyed.integers(again, index[open_], len(self.pool))]
            open_ = open_[seen(negative_row[open_], drawn[open_])]
        return negative_row, drawn

    def _shuffled(self, clients: npt.NDArray[np.int64], examples: Examples, purpose: str, *path: int) -> Examples:
        """Keyed order of the examples of clients with more than one batch; one batch has no order."""
        long = examples.counts > self.batch_size
        if not long.any():
            return examples
        row, place = segments(examples.counts)
        at = np.flatnonzero(long[row])
        keys = keyed.fold(keyed.key(self.seed, f"{purpose} order", *path), clients)
        draws = keyed.bits(keys[row[at]], place[at]) >> np.uint64(24)
        order = at[np.argsort((row[at].astype(np.uint64) << np.uint64(40)) | draws, kind="stable")]
        items, label = examples.items.copy(), examples.label.copy()
        items[at], label[at] = examples.items[order], examples.label[order]
        return Examples(items, label, examples.counts)
