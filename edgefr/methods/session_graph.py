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
    """These are graphs of T prefixes of a window of L positions, for P pairs of a prefix and a position.

    `nodes` [..., T, L]: 1 where a position is the first with its item. [..., L, P] from each pair's position to all:
    `itself`: 1 for the same item; `after` and `before`: how often its item follows or precedes the pair's.
    """

    nodes: Tensor
    itself: Tensor
    after: Tensor
    before: Tensor


def graph(made: Prefixes) -> SessionGraph:
    """Return the graphs of the prefixes.

    >>> from edgefr.methods.prefixes import prefixes
    >>> made = graph(prefixes(torch.tensor([[4.0], [8.0], [4.0], [8.0]]), torch.ones(4), True))
    >>> made.nodes[-1].tolist(), made.after[:, -4].tolist(), made.before[:, -4].tolist()
    ([1.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 2.0], [0.0, 1.0, 0.0, 1.0])
    """
    repeated = made.same.tril(-1).amax(-1)
    both = made.among(made.real[..., :-1].unsqueeze(-2) * made.seen[..., 1:])
    same, mine = made.same, made.beside(made.same)
    return SessionGraph(
        nodes=made.seen * (1 - repeated).unsqueeze(-2),
        itself=made.beside(torch.maximum(same, identity(same.shape[-1], same))),
        after=torch.matmul(same[..., 1:], both * mine[..., :-1, :]),
        before=torch.matmul(same[..., :-1], both * mine[..., 1:, :]),
    )


def relations(of: SessionGraph) -> Tensor:
    """Return edges by order, [..., 4, L, P] from pairs to positions: the same item, one before, after, or both."""
    follows, leads = ((steps > 0).to(steps.dtype) for steps in (of.after, of.before))
    parts = [leads * (1 - follows), follows * (1 - leads), follows * leads]
    return torch.stack([of.itself, *((1 - of.itself) * part for part in parts)], dim=-3)


def levels(made: Prefixes, of: SessionGraph) -> Tensor:
    """Return edges by weight, [..., 4, L, P]: quarters of an item's share of neighbours; itself is in the highest."""
    beside = (of.after + of.before) * (1 - of.itself) * made.among(of.nodes)
    every = beside.sum(-2, keepdim=True)
    linked = (beside > 0).to(beside.dtype)
    least = [linked, *(linked * (4 * beside >= k * every) for k in (1, 2, 3))]
    parts = [low - high for low, high in pairwise(least)]
    return torch.stack([*parts, least[-1] + of.itself], dim=-3)


def attention(made: Prefixes, vectors: Tensor, kinds: Tensor, weight: Tensor) -> Tensor:
    """Return GCE-GNN's attention of pairs on positions, [..., L, P] (Eq. 6-7), with a vector per kind of edge.

    `vectors` [..., 4, d], `kinds` [..., 4, L, P]; `weight` [..., T, L]: how much a position counts as a node, or 0.
    """
    asked = (made.x.unsqueeze(-3) * vectors.unsqueeze(-2)).flatten(-3, -2)  # [..., 4 L, d]
    scores = torch.matmul(asked, made.x.transpose(-1, -2)).unflatten(-2, kinds.shape[-3:-1])
    every = made.beside(torch.where(scores > 0, scores, SLOPE * scores))
    linked = kinds.sum(-3) * made.among(weight)
    return torch.softmax((every * kinds).sum(-3) + logged(linked), dim=-2)


def attended(links: Tensor, x: Tensor) -> Tensor:
    """Return what pairs make of positions [..., L, d] of which they take so much [..., L, P]: [..., P, d], Eq. 8."""
    return torch.matmul(links.transpose(-1, -2), x)


def logged(weight: Tensor) -> Tensor:
    """Return what is added to a score that counts as much as its weight says; not at all where it is 0."""
    return torch.where(weight > 0, weight.clamp_min(1e-9).log(), MASKED)
