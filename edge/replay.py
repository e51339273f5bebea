"""This is the client side of F3CRec (§4.2): how far a client's taste has moved, and what it replays.

Arrays have one row per client and one column per remembered item, best first; -1 marks an empty place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge import random_streams as purposes
from edge.ragged import Ragged
from privacy import keyed
from privacy.table import Table

Ints = npt.NDArray[np.int64]
Lists = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Replay:
    """Clients replay this beside their own examples: the same soft-labelled examples in every batch of the round.

    `items`: row k lists the distinct items of client slot k; `label` and `weight` float32 [n] stand beside its values.
    A label lies in [0, 1]; weights come on top of those of the batch, which sum to 1 per client.
    """

    items: Ragged
    label: Floats
    weight: Floats


def ranks(scores: npt.NDArray[np.float32], places: Ints) -> Ints:
    """Return ranks (1 is best) by `scores` [C, n] of their columns `places` [C, N], -1 for none (rank 0).

    Of equal scores the one in the earlier column is better, so every client's ranks differ.

    >>> ranks(np.array([[0.1, 0.9, 0.5]], np.float32), np.array([[1, 0, -1]])).tolist()
    [[1, 3, 0]]
    """
    own = np.take_along_axis(scores, np.maximum(places, 0), axis=1)
    ascending = np.sort(scores, axis=1)  # plain values sort many times faster than orders
    below = np.zeros((2, *own.shape), np.int64)
    for row in range(len(own)):
        below[0, row] = np.searchsorted(ascending[row], own[row], side="left")
        below[1, row] = np.searchsorted(ascending[row], own[row], side="right")
    rank = 1 + scores.shape[1] - below[1]
    tied = below[1] - below[0] > 1
    for row, column in zip(*np.nonzero(tied & (places >= 0)), strict=True):
        rank[row, column] += np.count_nonzero(scores[row, : places[row, column]] == own[row, column])
    return np.where(places >= 0, rank, 0)


def preference_shift(now: Ints) -> Ints:
    """Return how far each client's remembered list has moved. Sum over k of |rank of its k-th item - k|, int64 [C].

    `now` [C, N] are the items' ranks today; 0 marks an empty place.

    >>> preference_shift(np.array([[1, 2, 3], [3, 2, 1]])).tolist()
    [0, 4]
    """
    k = np.arange(1, now.shape[1] + 1)
    return np.where(now > 0, np.abs(now - k), 0).sum(axis=1)  # F3CRec Eq. 2


def memory_sizes(shift: Ints, sizes: Ints, scale: float) -> Ints:
    """Return how many remembered items each client replays: floor(exp(-scale * shift) * list length), int64 [C].

    >>> memory_sizes(np.array([0, 100]), np.array([30, 30]), 0.006).tolist()
    [30, 16]
    """
    rate = np.exp(-scale * shift)  # F3CRec Eq. 3
    return np.floor(rate * sizes).astype(np.int64)  # F3CRec Eq. 4


def without_replacement(
    keys: npt.NDArray[np.uint64], lists: Lists, sizes: Ints, weight: npt.NDArray[np.float64] | None = None
) -> npt.NDArray[np.bool_]:
    """Draw `sizes` [C] of each client's remembered items without replacement, bool [C, N] (Eq. 4).

    `weight` [C, N] makes items likelier (each draw proportional to it); none: all alike.
    """
    draws = keyed.uniform(keys[:, None], np.arange(lists.shape[1]))
    order = np.log(np.maximum(draws, 1e-300))  # the largest u^(1/w) win (Efraimidis & Spirakis, 2006)
    if weight is not None:
        order = order / np.maximum(weight, 1e-12)
    order = np.where(lists >= 0, order, -np.inf)
    place = np.argsort(np.argsort(-order, axis=1, kind="stable"), axis=1, kind="stable")
    return (place < sizes[:, None]) & (lists >= 0)


def best(scores: Floats, size: int) -> tuple[Ints, Floats]:
    """Columns of every client's `size` best scores, best first (ties by column), and the predictions for them (Eq. 1).

    >>> columns, labels = best(np.array([[0.0, 2.0, 2.0]], np.float32), 2)
    >>> columns.tolist(), bool(labels.min() > 0.88)
    ([[1, 2]], True)
    """
    columns = np.argsort(-scores, axis=1, kind="stable")[:, :size]
    top = np.take_along_axis(scores, columns, axis=1)
    return columns, (1 / (1 + np.exp(-top.astype(np.float64)))).astype(np.float32)


@dataclass(frozen=True)
class Step:
    """This is a step of local work: the phase's place in it, and how many steps each client has then done, [C]."""

    phase: int
    number: Ints


@dataclass(frozen=True)
class ReplayRule:
    """A rule says which of the remembered items enter a round, and with what weight.

    `picks` names an entry of `PICKS`. `weight` and `reduction`: a client's replayed examples weigh `weight` in all
    ("mean") or each ("sum"). `shift_scale` is Eq. 3's epsilon. `seed` keys the draws.
    """

    picks: str
    list_size: int
    shift_scale: float
    weight: float
    reduction: str
    seed: int

    def chosen(
        self, lists: Lists, now: Ints | None, clients: Ints, number: int, step: Step | None = None
    ) -> npt.NDArray[np.bool_]:
        """Say what enters round `number`, bool [C, N]; `now` [C, N] are today's ranks (None where nothing is drawn).

        `step`: where every step of a round has a draw of its own.
        """
        draw = PICKS[self.picks].draw
        if draw is None:
            return lists >= 0
        if now is None:
            raise ValueError(f"picks {self.picks} draws by today's ranks, and got none")
        if step is None:
            return draw(self, lists, now, keyed.fold(keyed.key(self.seed, purposes.REPLAY, number), clients))
        keys = keyed.fold(keyed.key(self.seed, purposes.REPLAY, number, step.phase), clients)
        return draw(self, lists, now, keyed.bits(keys, step.number))

    def weights(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the weight of every remembered item, 0 where it is not chosen, [C, N] (F3CRec Eq. 5, 6)."""
        counts = chosen.sum(axis=1, keepdims=True)
        return np.where(chosen, self.weight / REDUCTIONS[self.reduction](np.maximum(counts, 1)), 0.0)

    def replay(self, lists: Lists, labels: Floats, chosen: npt.NDArray[np.bool_]) -> Replay:
        """Return the chosen items as soft-labelled examples (F3CRec Eq. 5, 6)."""
        counts = chosen.sum(axis=1)
        items = Ragged(lists[chosen], np.concatenate([[0], np.cumsum(counts)]))
        return Replay(items, labels[chosen], self.weights(chosen)[chosen].astype(np.float32))


REDUCTIONS: Mapping[str, Callable[[Ints], Ints]] = {"mean": lambda counts: counts, "sum": np.ones_like}
"""What a replayed example's weight is divided by, where its client replays `counts` of them."""


@dataclass(frozen=True)
class Picks:
    """A way to pick from what is remembered has a name; `draw(rule, lists, now, keys)` says what enters a round.

    bool [C, N], of lists [C, N] with today's ranks `now` [C, N] and a key per client; None: the whole list does, and no
    ranks are needed. `reads`: the settings of learning over blocks that it alone reads. `on_device`: whether a bundle
    may ask a device for it.
    """

    name: str
    draw: Callable[[ReplayRule, Lists, Ints, npt.NDArray[np.uint64]], npt.NDArray[np.bool_]] | None
    on_device: bool
    reads: frozenset[str] = frozenset()


def _adaptive(rule: ReplayRule, lists: Lists, now: Ints, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """As many as the client's taste is steady (F3CRec Eq. 2-4)."""
    sizes = memory_sizes(preference_shift(now), (lists >= 0).sum(axis=1), rule.shift_scale)
    return without_replacement(keys, lists, sizes)


def _discrepancy(rule: ReplayRule, lists: Lists, now: Ints, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """As many as one list has, the likelier the further they have fallen (SPP)."""
    then = np.arange(now.shape[1]) % rule.list_size + 1
    fallen = np.maximum(now - then, 0)  # places lost since a proxy ranked it
    sizes = np.minimum((lists >= 0).sum(axis=1), rule.list_size)
    return without_replacement(keys, lists, sizes, np.log1p(fallen) + 1e-6)


PICKS: Table[Picks] = Table("picks", Picks)
"""Which remembered items can enter a round."""

PICKS.register(Picks("all", None, on_device=True))
PICKS.register(Picks("adaptive", _adaptive, on_device=True, reads=frozenset({"shift_scale", "redraw"})))
PICKS.register(Picks("discrepancy", _discrepancy, on_device=False))
