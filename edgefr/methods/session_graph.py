"""A session as a graph: its items are nodes, and who came right after whom are edges of several kinds.

    prefixes → how often item q came right after item p → kinds of edges → attention over neighbours (GCE-GNN, 2020)

A node stands at the first position that has its item. A client knows the graph of its own session, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from edgefr.methods.fcucr.layers import MASKED
from edgefr.methods.prefixes import Prefixes, identity

KINDS = 4
SLOPE = 0.2
"""Of the leaky rectifier."""


@dataclass(frozen=True)
class SessionGraph:
    """These are the graphs of T prefixes, each over the L positions of the window.

    `nodes` [..., T, L]: 1 where a position is the first with its item, and the prefix sees it. `itself` [..., 1, L, L]:
    1 where two positions have one item. `steps` [..., T, L, L]: how often the item of the second position came right
    after that of the first.
    """

    nodes: Tensor
    itself: Tensor
    steps: Tensor


def graph(made: Prefixes) -> SessionGraph:
    """Return the graphs of the prefixes.

    >>> from edgefr.methods.prefixes import prefixes
    >>> made = graph(prefixes(torch.tensor([[4.0], [8.0], [4.0], [8.0]]), torch.ones(4), True))
    >>> made.nodes[-1].tolist(), made.steps[-1][0].tolist()
    ([1.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 2.0])
    """
    length = made.x.shape[-2]
    repeated = (made.same * torch.ones_like(made.same[..., 0, :, :]).tril(-1).unsqueeze(-3)).amax(-1)
    both = made.real[..., :-1] * made.seen[..., 1:]
    steps = torch.matmul(made.same[..., :-1] * both.unsqueeze(-2), made.same[..., 1:].transpose(-1, -2))
    own = identity(length, made.x)
    return SessionGraph(made.seen * (1 - repeated), torch.maximum(made.same, own), steps)


def relations(of: SessionGraph) -> Tensor:
    """Return edges by order, [..., T, 4, L, L] from a position to others: the same item, one before, after, or both."""
    follows = (of.steps > 0).to(of.steps.dtype)
    leads, other = follows.transpose(-1, -2), 1 - of.itself
    parts = [leads * (1 - follows), follows * (1 - leads), follows * leads]
    return torch.stack([of.itself.expand_as(follows), *(other * part for part in parts)], dim=-3)


def levels(of: SessionGraph) -> Tensor:
    """Return edges by weight, [..., T, 4, L, L]: by quarters, how many of an item's neighbours an item is.

    Neighbours are counted as often as they stood beside it. An item is to itself of the highest level.
    """
    beside = (of.steps + of.steps.transpose(-1, -2)) * (1 - of.itself) * of.nodes.unsqueeze(-2)
    every = beside.sum(-1, keepdim=True)
    linked = (beside > 0).to(beside.dtype)
    least = [linked, *(linked * (4 * beside >= k * every) for k in (1, 2, 3))]
    parts = [low - high for low, high in pairwise(least)]
    return torch.stack([*parts, least[-1] + of.itself], dim=-3)


def attended(x: Tensor, vectors: Tensor, kinds: Tensor, weight: Tensor) -> Tensor:
    """Return what positions make of their neighbours, [..., T, L, d]: GCE-GNN Eq. 6-8, a vector for each kind of edge.

    x [..., 1, L, d], `vectors` [..., 1, 4, d], `kinds` [..., T, 4, L, L]; `weight` [..., T, L]: how much a position
    counts as a node, 0 for none.
    """
    asked = x.unsqueeze(-3) * vectors.unsqueeze(-2)  # [..., 1, 4, L, d]
    scores = torch.matmul(asked, x.unsqueeze(-3).transpose(-1, -2))
    scores = (torch.where(scores > 0, scores, SLOPE * scores) * kinds).sum(-3)
    linked = kinds.sum(-3) * weight.unsqueeze(-2)
    return torch.matmul(torch.softmax(scores + logged(linked), dim=-1), x)


def logged(weight: Tensor) -> Tensor:
    """Return what is added to a score that counts as much as its weight says; not at all where it is 0."""
    return torch.where(weight > 0, weight.clamp_min(1e-9).log(), MASKED)
