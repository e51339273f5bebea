"""This draws what a client trains on over sessions: the window of its session, and keyed negatives beside each target.

    session → the last length + 1 items → inputs and targets → negatives of every epoch → the client's rows

Everything is a function of (seed, purpose, round, epoch, client, index), as in `edge.sampling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edge import random_streams as purposes
from edge.ragged import Ragged
from edge.sampling import Membership, draw_negatives
from privacy import keyed
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Windows:
    """These are sessions' newest items, set to the right: `items` int64 [C, L], 0 where `real` float32 [C, L] is 0.

    `times` float32 [C, L]: seconds since the window's first item.
    """

    items: Ints
    real: Floats
    times: Floats


@dataclass(frozen=True)
class Draw:
    """These are the examples of a shard for all epochs of a round.

    A position of a window stands for its item as input and for the item after it as target. `inputs`, `positives`
    [C, L] and `negatives` [E, C, L, n] number the (client, item) pairs of the shard, 0..R-1, which ascend by client,
    then item: `slots` and `touched` [R]. Padding has `real` 0 and the number of a row of its own client, so that a
    client whose values are no numbers spoils nobody's padding. `asked`: the windows that clients ask about, where they
    ask about their next sessions (their items are numbers of pairs, too).
    """

    inputs: Ints
    positives: Ints
    negatives: Ints
    real: Floats
    times: Floats
    slots: Ints
    touched: Ints
    asked: Windows | None = None


def windows(items: Ragged, times: Ragged, sessions: Ints, length: int, skip: int = 0) -> Windows:
    """Return the last `length` items of each session, without its `skip` newest; a session -1 has none.

    >>> made = windows(Ragged.from_lists([[5, 6, 7]]), Ragged.from_lists([[10, 20, 40]]), np.array([0, -1]), 2)
    >>> made.items.tolist(), made.real.tolist(), made.times[0].tolist()
    ([[6, 7], [0, 0]], [[1.0, 1.0], [0.0, 0.0]], [0.0, 20.0])
    """
    held = np.flatnonzero(sessions >= 0)
    start, stop = np.zeros((2, len(sessions)), np.int64)
    start[held], stop[held] = items.offsets[sessions[held]], items.offsets[sessions[held] + 1] - skip
    at = stop[:, None] - length + np.arange(length)
    real = at >= start[:, None]
    real[sessions < 0] = False
    chosen, moments = np.zeros((2, *real.shape), np.int64)
    chosen[real], moments[real] = items.values[at[real]], times.values[at[real]]
    first = moments[np.arange(len(at)), length - np.maximum(real.sum(axis=1), 1)]
    since = np.where(real, moments - first[:, None], 0)
    return Windows(chosen, real.astype(np.float32), since.astype(np.float32))


def window_of(items: npt.ArrayLike, times: npt.ArrayLike, length: int, skip: int = 0) -> Windows:
    """Return the window of one session that has these items; as `windows`."""
    whole, moments = np.asarray(items, np.int64), np.asarray(times, np.int64)
    offsets = np.array([0, len(whole)])
    return windows(Ragged(whole, offsets), Ragged(moments, offsets), np.array([0 if len(whole) else -1]), length, skip)


@dataclass(eq=False)
class SessionSampler:
    """The sampler draws what clients train on from their current sessions.

    `items`, `times`: every session of the data; `current` [clients]: the session a client trains on in this round, -1
    for none. `seen`: items a client has had, which are no negatives of it. `pool`: items that may be negatives.
    `length`: positions of a window. `ids` key the draws where clients are not numbered as in `current` (a device).
    `once`: a round's epochs have the same negatives. `following` [clients]: the sessions that clients ask about after
    they have trained, -1 for none (None: they ask about those they train on). `train`: every client's targets of this
    round, by which it is weighed. A client without a current session of two items or more has no examples.
    """

    items: Ragged
    times: Ragged
    current: Ints
    seen: Ragged
    pool: npt.NDArray[np.integer]
    catalogue: int
    length: int
    negatives: int
    seed: int
    ids: Ints | None = None
    once: bool = False
    following: Ints | None = None

    def __post_init__(self) -> None:
        full = np.flatnonzero(self.seen.counts >= len(self.pool)) if self.negatives else np.empty(0)
        if len(full):
            raise InputError(
                f"client {full[0]} has had {self.seen.counts[full[0]]} of {len(self.pool)} items, so no negative can "
                "be drawn for it; use a larger catalogue or set negatives=0"
            )
        self.pool = np.asarray(self.pool, np.int32)
        self.batch_size = self.length * (1 + self.negatives)
        some = self._window(self.current).real > 0
        targets = windows(self.items, self.times, self.current, self.length)
        self.train = Ragged(targets.items[some], np.concatenate([[0], np.cumsum(some.sum(axis=1))]))

    def steps(self, clients: Ints) -> Ints:
        """Return the optimiser steps of one epoch of these clients: one session is one step."""
        return (self.train.counts[clients] > 0).astype(np.int64)

    def window(self, clients: Ints) -> Windows:
        """Return the inputs of these clients' current sessions: all but the newest item."""
        return self._window(self.current[clients])

    def _window(self, sessions: Ints) -> Windows:
        return windows(self.items, self.times, sessions, self.length, skip=1)

    def draw(self, clients: Ints, purpose: str, number: int, epochs: int) -> Draw:
        """Draw the examples of these clients in round `number` (the same for any shard)."""
        return self.draws(clients, {purpose: epochs}, number)[purpose]

    def draws(
        self, clients: Ints, epochs: Mapping[str, int], number: int, whole_catalogue: bool = False
    ) -> dict[str, Draw]:
        """Draw the examples of every purpose, all numbering the pairs that any of them reads, or all that there are."""
        inputs = self.window(clients)
        targets = windows(self.items, self.times, self.current[clients], self.length)
        some = inputs.real > 0
        positives = np.where(some, targets.items, 0)
        row, place = np.nonzero(some)
        negatives = np.zeros((sum(epochs.values()), *some.shape, self.negatives), np.int64)
        if len(row):
            own = self.seen.take(clients)
            seen = Membership(own.rows, own.values, len(clients), self.catalogue)
            who = clients if self.ids is None else self.ids[clients]
            each = ((purpose, epoch) for purpose, count in epochs.items() for epoch in range(count))
            for at, (purpose, epoch) in enumerate(each):
                if self.once and epoch:
                    negatives[at] = negatives[at - 1]
                    continue
                keys = keyed.fold(keyed.key(self.seed, purposes.negatives(purpose), number, epoch), who)
                negatives[at, row, place] = self._negatives(keys, row, place, seen)
        every = self._numbered(clients, inputs, positives, negatives, whole_catalogue)
        ends = np.cumsum(list(epochs.values())).tolist()
        return {
            purpose: replace(every, negatives=every.negatives[end - count : end])
            for (purpose, count), end in zip(epochs.items(), ends, strict=True)
        }

    def _negatives(self, keys: npt.NDArray[np.uint64], row: Ints, place: Ints, seen: Membership) -> Ints:
        index = place[:, None] * self.negatives + np.arange(self.negatives)
        rows = np.broadcast_to(row[:, None], index.shape).reshape(-1)
        drawn = draw_negatives(self.pool, keys, rows, index.reshape(-1), seen)
        return drawn.reshape(index.shape).astype(np.int64)

    def _numbered(
        self, clients: Ints, inputs: Windows, positives: Ints, negatives: Ints, whole_catalogue: bool
    ) -> Draw:
        """Number the pairs of client and item that anything here reads, or all of them."""
        real = inputs.real > 0
        slot = np.arange(len(clients))[:, None]
        asked = None if self.following is None else self._window(self.following[clients])
        parts = [inputs.items, positives, *(negatives[..., n] for n in range(self.negatives))]
        shown = [real] * len(parts)
        if asked is not None:
            parts, shown = [*parts, asked.items], [*shown, asked.real > 0]
        codes = [np.broadcast_to(slot * self.catalogue + part, (*part.shape[:-2], *real.shape)) for part in parts]
        masks = [np.broadcast_to(mask, code.shape) for mask, code in zip(shown, codes, strict=True)]
        flat = np.concatenate([code[mask] for code, mask in zip(codes, masks, strict=True)])
        found, place = np.unique(flat, return_inverse=True)
        if whole_catalogue:
            found, place = np.arange(len(clients) * self.catalogue), flat
        slots, touched = found // self.catalogue, found % self.catalogue
        first = np.minimum(np.searchsorted(slots, slot), max(len(slots) - 1, 0))  # each client's first row
        numbers, at = [], 0
        for mask in masks:
            number = np.broadcast_to(first, mask.shape).copy()
            count = int(np.count_nonzero(mask))
            number[mask] = place[at : at + count]
            numbers.append(number)
            at += count
        if asked is not None:
            asked = replace(asked, items=numbers.pop())
        drawn = np.stack(numbers[2:], axis=-1) if self.negatives else np.zeros(negatives.shape, np.int64)
        return Draw(numbers[0], numbers[1], drawn, inputs.real, inputs.times, slots, touched, asked)
