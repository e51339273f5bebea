"""A batch stands between a local program and the layout of its data: it is what a loss is asked about.

    One      one client's examples [n], or a shard's with a leading client dimension, short clients padded
    Padded   a shard's so, made from one list in which no client has an item twice
    Flat     the examples of many clients in one list [N], for programs without dense layers of the clients' own
    Window   a client's session, or those of a shard, with or without a leading client dimension

Tracing has a layout of its own, whose rows come gathered (`export.graphs`). A program asks every one of them the same
(`Batch`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """These are positives among a batch's examples, and the negatives drawn for each: for losses that compare them.

    `positive` [..., P] and `negative` [..., P, k] are places of examples (an item that was drawn twice is one example,
    and stands in two places here); `share` [..., P] is 1/P, 0 for padding. `context` [..., P, L] are places of what the
    client had before a positive, the newest last, where `there` [..., P, L] is 1; elsewhere there is nothing, and the
    place is another of the client's own (None where the phase does not ask for it).
    """

    positive: Tensor
    negative: Tensor
    share: Tensor
    context: Tensor | None = None
    there: Tensor | None = None

    @property
    def candidates(self) -> Tensor:
        """Return the places of each positive with its negatives after it, [..., P, 1 + k]."""
        return torch.cat([self.positive.unsqueeze(-1), self.negative], dim=-1)

    def of(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the examples' values [..., n] (scores) as those of positives [..., P] and of negatives [..., P, k]."""
        wide = values.gather(-1, self.negative.flatten(-2))
        return values.gather(-1, self.positive), wide.unflatten(-1, self.negative.shape[-2:])

    def mean(self, values: Tensor) -> Tensor:
        """Take the mean of values [..., P] over each client's positives, summed over clients (a scalar)."""
        return (values * self.share).sum()


def rows_at(values: Tensor, places: Tensor) -> Tensor:
    """Return the rows of examples [..., n, width] at some of their places [..., *]: [..., *, width]."""
    if values.ndim == 2:
        return torch.nn.functional.embedding(places, values)
    clients, n, width = values.shape
    first = torch.arange(clients, device=values.device) * n
    return torch.nn.functional.embedding(places + first.view(-1, *[1] * (places.ndim - 1)), values.reshape(-1, width))


class Batch:
    """A program asks this of its examples: `label` and `weight` [..., n], and the methods below.

    `weight` is 1/n for examples (1 where a phase sums them), 0 for padding, so that weighted sums are means over a
    client's examples. `history` holds the client's own past positives as another batch, `label` 1 for real entries
    (None where the program does not ask for it); `training` says that the positives among the examples are in that
    history. `pairs` says which negatives belong to which positive (None where the phase does not ask for it).
    """

    label: Tensor
    weight: Tensor
    history: Batch | None
    training: bool
    pairs: Pairs | None

    def rows(self, table: Tensor) -> Tensor:
        """Return rows of a `rows` tensor for these items: [..., n, width]."""
        raise NotImplementedError

    def frozen(self, table: Tensor) -> Tensor:
        """Return rows of a frozen catalogue table (text vectors, item vectors) for these items: [..., n, width]."""
        raise NotImplementedError

    def beside(self, table: Tensor) -> Tensor | None:
        """Return rows of a prepared table for these items, [..., n, width]; None where nobody has prepared any.

        A simulated client's program keeps for itself what it prepares.
        """
        return None

    def own(self, tensor: Tensor) -> Tensor:
        """Return a client's own vector beside each of its examples: [..., width] -> [..., 1 or n, width]."""
        return tensor.unsqueeze(-2)

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Apply a client's own dense layer: x [..., n, in] @ weight [..., in, out] + bias [..., out]."""
        return torch.matmul(x, weight).add_(bias.unsqueeze(-2))

    def mean(self, values: Tensor) -> Tensor:
        """Take the mean over each client's examples, summed over clients (a scalar)."""
        return (values * self.weight).sum()

    def over_items(self, values: Tensor) -> Tensor:
        """Sum over the distinct items of each client's batch, summed over clients; values [..., n] of an item agree."""
        raise NotImplementedError


@dataclass(frozen=True)
class One(Batch):
    """These are the examples of one client, [n], or of several, with a leading client dimension.

    `items` index the rows tensors the engine hands over; `catalogue` are the same items' numbers in the catalogue (they
    index `frozen` tables); the others as of `Batch`.
    """

    items: Tensor
    catalogue: Tensor
    label: Tensor
    weight: Tensor
    history: One | None = None
    training: bool = False
    pairs: Pairs | None = None

    def rows(self, table: Tensor) -> Tensor:
        return torch.nn.functional.embedding(self.items, table)

    def frozen(self, table: Tensor) -> Tensor:
        return torch.nn.functional.embedding(self.catalogue, table)

    def over_items(self, values: Tensor) -> Tensor:
        real = self.weight > 0
        same = (self.items.unsqueeze(-1) == self.items.unsqueeze(-2)) & real.unsqueeze(-2)
        return (values * real / same.sum(-1).clamp_min(1)).sum()


def told(items: Tensor, catalogue: Tensor, there: Tensor) -> One:
    """Return the batch that a message is about: the only pair is [..., 0], its context the others, where `there` is 1.

    `items` [..., 1 + L] index the rows, `catalogue` are their numbers.
    """
    ones = there.new_ones(items.shape)
    place = torch.arange(items.shape[-1], device=items.device).expand(items.shape)
    negative = place.new_zeros(*items.shape[:-1], 1, 0)
    pairs = Pairs(place[..., :1], negative, ones[..., :1], place[..., 1:].unsqueeze(-2), there.unsqueeze(-2))
    return One(items, catalogue, ones, ones, pairs=pairs)


@dataclass(frozen=True)
class Padded(One):
    """These are the examples of many clients in one list [N], laid out [C, n] with short clients padded:

    every field is [C, n], rows tensors come in gathered and laid out, one row per place. A client has an item once.

    `items` number the list's entries (0 for padding), `places` [N] are the entries' among C x n.
    """

    places: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def laid(self, values: Tensor) -> Tensor:
        """Lay a list out: [N, ...] -> [C, n, ...], in padding what the first entry has."""
        return values.index_select(0, self.items.flatten()).unflatten(0, self.items.shape)

    def listed(self, values: Tensor) -> Tensor:
        """Return what was laid out as a list: [C, n, ...] -> [N, ...]."""
        return values.flatten(0, 1).index_select(0, self.places)

    def rows(self, table: Tensor) -> Tensor:
        return table

    def over_items(self, values: Tensor) -> Tensor:
        return (values * (self.weight > 0)).sum()  # a client has an item once


@dataclass(frozen=True)
class Window(One):
    """This is a client's session:

    of `One`, `items` and `catalogue` [..., L] are inputs and `label` is 1 where they are real.

    `weight` [..., L] is each position's share of the loss. `positive` [..., L] and `negative` [..., L, n] index rows
    like `items`; `target` [..., L] are the positives' numbers in the catalogue. `times` [..., L] are seconds since the
    first item, `taught` [..., L, d] the teacher's features. `kept`: what values are multiplied with where dropout takes
    some, by site [..., *shape]; nothing where it takes none.
    """

    times: Tensor = field(default_factory=lambda: torch.empty(0))
    positive: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    negative: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    taught: Tensor | None = None
    target: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    kept: Mapping[str, Tensor] = field(default_factory=dict)

    def everything(self, table: Tensor) -> Tensor:
        """Return the whole of a `rows` tensor, [..., items, width], for programs that read the whole catalogue."""
        return table.unflatten(0, (*self.items.shape[:-1], -1))


@dataclass(frozen=True)
class Flat(One):
    """These are the examples of many clients in one list: fields are [N], rows tensors have one row per example.

    `client` [N] says whose example it is (ascending), `ends` [C] counts the examples of clients 0..c together.
    """

    client: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    ends: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def laid(self, values: Tensor) -> Tensor:
        """Return a list as it is (see `Padded`)."""
        return values

    def listed(self, values: Tensor) -> Tensor:
        return values

    def rows(self, table: Tensor) -> Tensor:
        return table

    def over_items(self, values: Tensor) -> Tensor:
        return values.sum()  # a client has an item once

    def own(self, tensor: Tensor) -> Tensor:
        repeated = cast(Tensor, _Repeat.apply(tensor, self.client, self.ends))
        repeated.runs = (tensor, self.ends)  # type: ignore[attr-defined]  # what `inner` needs; any operation drops it
        return repeated

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        raise TypeError("a program with dense layers per client runs in the padded layout; set pointwise = False")


SMALLEST = 1e-6
"""Added to a length before it divides, as `torch.nn.utils.clip_grad_norm_` does."""


def shrink(square: Tensor, most: float) -> Tensor:
    """Return what a step's gradients of this squared joint length [...] are multiplied by: at most 1.

    This is a step's stability and promises nothing of what leaves a device: that is `privacy.clip`.

    >>> shrink(torch.tensor([0.25, 100.0]), 1.0).round(decimals=4)
    tensor([1.0000, 0.1000])
    """
    return (most / (square.sqrt() + SMALLEST)).clamp(max=1.0)


class _Repeat(torch.autograd.Function):
    """These are rows repeated for runs of examples, whose gradient sums each run in one pass."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, client: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(ends)
        return tensor.index_select(0, client)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _sum_runs(gradients[0], ctx.saved_tensors[0]), None, None


class _InnerOfRuns(torch.autograd.Function):
    """(repeated * vectors).sum(-1), whose gradient for the users is summed over their runs at once."""

    @staticmethod
    def forward(ctx: Any, users: Tensor, vectors: Tensor, repeated: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, repeated, ends)
        return _products_of_runs(users, vectors, ends) if vectors.device.type == "cpu" else (vectors * repeated).sum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        vectors, repeated, ends = ctx.saved_tensors
        of_users = _sum_runs(vectors, ends, gradients[0].contiguous()) if ctx.needs_input_grad[0] else None
        return of_users, gradients[0].unsqueeze(-1) * repeated if ctx.needs_input_grad[1] else None, None, None


def _products_of_runs(users: Tensor, vectors: Tensor, ends: Tensor) -> Tensor:
    """Multiply each vector by its run's user: the entries of a product of matrices, without an array between."""
    where = torch.nn.functional.pad(ends, (1, 0)), torch.arange(len(vectors))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        entries = torch.sparse_csr_tensor(
            *where, vectors.new_zeros(len(vectors)), (len(users), len(vectors)), check_invariants=False
        )
    return torch.sparse.sampled_addmm(entries, users, vectors.t(), beta=0.0).values()


def _sum_runs(values: Tensor, ends: Tensor, weight: Tensor | None = None) -> Tensor:
    each = torch.arange(len(values), device=ends.device)
    starts = torch.nn.functional.pad(ends[:-1], (1, 0))
    return torch.nn.functional.embedding_bag(each, values, starts, mode="sum", per_sample_weights=weight)


def inner(user: Tensor, vectors: Tensor) -> Tensor:
    """Return inner products of users with item vectors, in every layout: [..., 1 or n, d], [..., n, d] -> [..., n]."""
    runs = getattr(user, "runs", None)
    if runs is not None and vectors.ndim == 2:
        return cast(Tensor, _InnerOfRuns.apply(runs[0], vectors, user.detach(), runs[1]))
    if user.shape[-2] == 1:  # one vector for all of the client's examples: a product of matrices
        return torch.matmul(vectors, user.transpose(-1, -2)).squeeze(-1)
    return (user * vectors).sum(-1)
