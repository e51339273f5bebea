"""These are the arrays that compiled clients are made of, and what they leave."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from edgefr.engine.aggregate import ReleaseTerms


@functools.lru_cache(maxsize=2)
def maps(items: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return three zero maps of the catalogue, which calls leave zero: making them takes longer."""
    return np.zeros(items, np.uint32), np.zeros(items, np.int64), np.zeros(items, np.int64)


def plain(values: Any, kind: Any) -> Any:
    """Return values as a contiguous writable array of one type: every other layout would be compiled anew."""
    return np.require(values, kind, ["C", "W"])


class Lists(NamedTuple):
    """These are ragged columns of a shard's clients: what each had, what it avoids beside that, what it replays."""

    had: Any
    had_ends: Any
    avoids: Any
    avoids_ends: Any
    replays: Any
    replays_ends: Any
    label: Any
    weight: Any


class Draws(NamedTuple):
    """These say how examples are drawn: `numbers` [C] key the clients, `negatives` and `orders` [epochs] the draws.

    `each` negatives of `pool` for a positive; they stay together in `groups` of examples, of which `batch` are a batch.
    `mixed`: examples are numbered positive by positive, each before its negatives, else all positives come first.
    """

    numbers: Any
    negatives: Any
    orders: Any
    pool: Any
    each: int
    groups: int
    mixed: bool
    batch: int


class Phases(NamedTuple):
    """These are the phases in order: those from `turns[t]` to `turns[t + 1]` take turns.

    `trains` and `rates` [P, 4]: of rows, weight, beside and bias, in this order.
    """

    turns: Any
    epochs: Any
    trains: Any
    rates: Any
    loss: int
    temperature: Any


class Tensors(NamedTuple):
    """These are the broadcast `rows` [items, d] and clients' own tensors, which are trained in place.

    `weight` [C, k + d], `beside` [C, k], `bias` [C, 1]; k may be 0, and so may the width of `bias`.
    """

    rows: Any
    weight: Any
    beside: Any
    bias: Any


class Release(NamedTuple):
    """These are the terms of a release: `clip`, the grid's `step` (0: none), `share` before it, weights `sizes` [C].

    `leaves`: rows are learned and summed; else clients train private tensors alone.
    """

    leaves: bool
    clip: float
    l1: bool
    step: float
    share: float
    largest: float
    sizes: Any

    @classmethod
    def of(cls, terms: ReleaseTerms, weights: npt.NDArray[np.float64], leaves: bool = True) -> Release:
        clip, step = terms.clip or 0.0, terms.step or 0.0
        return cls(leaves, clip, terms.norm == "l1", step, terms.share, terms.largest, weights)


class Out(NamedTuple):
    """These are a shard's releases: the rows `found`, their `sums` [rows, d], `norms` [C] before the clip.

    `seen` and `slot` [items] are maps of zeros, and left so.
    """

    seen: Any
    slot: Any
    found: Any
    sums: Any
    norms: Any

    @classmethod
    def of(cls, items: int, touched: int, width: int, clients: int) -> Out:
        """Make room for so many `touched` rows of a catalogue."""
        return cls(*maps(items)[:2], np.empty(touched, np.int64), np.empty((touched, width)), np.empty(clients))


class Total(NamedTuple):
    """These are the sums of several shards' sums; `slot` [items] is a map of zeros, and left so."""

    slot: Any
    found: Any
    sums: Any

    @classmethod
    def of(cls, items: int, touched: int, width: int) -> Total:
        """Make room for so many `touched` rows of a catalogue."""
        return cls(maps(items)[2], np.empty(touched, np.int64), np.empty((touched, width)))


class Room(NamedTuple):
    item: Any
    change: Any
    moved: Any
    place: Any
    row: Any
    weight: Any
    target: Any
    bounds: Any
    example: Any
    pair: Any
    code: Any
    spare: Any
    ends: Any
    now: Any
    score: Any
    raw: Any


class System(NamedTuple):
    """These are the broadcast `rows` [items, d] and `gram` [d, d] of clients that solve a system, and its weights."""

    rows: Any
    gram: Any
    alpha: Any
    ridge: Any


class SystemRoom(NamedTuple):
    """This is room for one client that solves a system: `matrix` [d, d + 1]; its rows as those of `Room`."""

    matrix: Any
    item: Any
    change: Any
    moved: Any


class Tables(NamedTuple):
    """These are what layers read: `rows` of items, what clients had, and fixed `users` [C, d], 0 wide for none."""

    rows: Any
    had: Any
    had_ends: Any
    users: Any


class Steps(NamedTuple):
    """These are a shard's steps in order: the `count` entries of client c in step s begin at `first`, both [S, C].

    `items`, `weight`, `target` (weight times label) [N]; its `pairs` begin at `first_pair` among `groups` [P, 1 + k],
    which number entries, a positive before its negatives.
    """

    items: Any
    weight: Any
    target: Any
    first: Any
    count: Any
    groups: Any
    first_pair: Any
    pairs: Any


class Loss(NamedTuple):
    """This is what scores cost; `mean`: the client's vector is the mean of what it had; `residual`: of its layers."""

    kind: int
    temperature: Any
    mean: bool
    residual: bool


class Optimiser(NamedTuple):
    """This is how values move: those before `ends[t]`, from `ends[t - 1]` on, at rate `rates[t]`.

    `sizes` and `epsilons` are Adam's corrections by the number of the step, without `moments` nothing.
    """

    ends: Any
    rates: Any
    moments: bool
    beta_2: Any
    sizes: Any
    epsilons: Any


class LayersRoom(NamedTuple):
    """This is room for one client: `x` the values of `most` rows, layer after layer, and `by_x` what the loss makes.

    `item` are a step's rows that are no client's past, `row` says where its entries lie, `seen` [items] where what the
    client had does, counted from 1, 0 elsewhere.
    """

    most: int
    x: Any
    by_x: Any
    by_own: Any
    by_u: Any
    item: Any
    row: Any
    seen: Any
    score: Any
    raw: Any
    weight: Any
    target: Any
    pair: Any
    done: Any
