"""HearInt by loops over the pairs of one prefix at a time; what training tells apart; the contrast, pair by pair."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from edgefr.methods.hearint.program import HearInt
from edgefr.methods.prefixes import prefixes
from export.batches import One
from tests.closeness import assert_same
from tests.methods.prefixed import (
    DIM,
    ITEMS,
    LENGTH,
    SESSIONS,
    drawn,
    program,
    scores,
    window,
)

APART = 0.4


def linear(own: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ own[f"{name}.weight"] + own.get(f"{name}.bias", torch.zeros(()))


def order_of(prefix: list[int], one: int, other: int) -> int | None:
    """The kind of the edge by order: the same item, one that came right before it, after it, or both."""
    before, after = (other, one) in pairwise(prefix), (one, other) in pairwise(prefix)
    if one == other:
        return 0
    return {(True, False): 1, (False, True): 2, (True, True): 3}.get((before, after))


def level_of(prefix: list[int], one: int, other: int) -> int | None:
    """The kind of the edge by weight: which quarter of its neighbours the other item is."""
    neighbours = [b if a == one else a for a, b in pairwise(prefix) if a != b and one in (a, b)]
    if one == other:
        return 3
    return min(int(4 * neighbours.count(other) / len(neighbours)), 3) if other in neighbours else None


def neighbours(table: Tensor, prefix: list[int], vectors: Tensor, kind, weight: dict[int, float]) -> Tensor:
    """What every position makes of the items that are linked to its own."""
    out = []
    for one in prefix:
        linked = [item for item in dict.fromkeys(prefix) if kind(prefix, one, item) is not None]
        raw = [F.leaky_relu(vectors[kind(prefix, one, i)] @ (table[one] * table[i]), 0.2) for i in linked]
        share = torch.softmax(torch.stack(raw) + torch.tensor([math.log(weight[i]) for i in linked]), dim=0)
        out.append(share @ table[linked])
    return torch.stack(out)


def literally(tensors: dict[str, Tensor], prefix: list[int], apart: float | None) -> Tensor:
    """One prefix as the public code has it; `apart`: how much less counts what points away, in training."""
    own = {name.removeprefix("encoder."): value for name, value in tensors.items()}
    table = F.normalize(tensors["item"], dim=-1)
    x, places = table[prefix], own["position"][: len(prefix)].flip(0)

    def kept(of: Tensor) -> Tensor:
        return torch.tensor([1.0 if apart is None or float(row @ of) > 0 else 1 - apart for row in x])

    short, long = kept(x[-1]), kept(x.mean(0))
    # in order
    query = F.selu(linear(own, "query", x[-1] + places[-1]))
    share = torch.softmax((x + places) @ query / math.sqrt(DIM) + short.log(), dim=0)
    found = share @ (x + places)
    found = found + linear(own, "outer", F.selu(linear(own, "inner", found)))
    # as a graph
    weight = dict(zip(prefix, long.tolist(), strict=True))
    by_order = neighbours(table, prefix, own["order"], order_of, weight)
    by_level = neighbours(table, prefix, own["level"], level_of, weight)
    gate = torch.sigmoid(linear(own, "mix", torch.cat([by_order, by_level], dim=-1)))
    nodes = gate * by_order + (1 - gate) * by_level
    told = torch.tanh(linear(own, "place", torch.cat([places, nodes], dim=-1)))
    mean = (long[:, None] * nodes).sum(0) / long.sum()
    asked = torch.sigmoid(linear(own, "asked", told) + linear(own, "whole", mean))
    graph = (linear(own, "share", asked) * long[:, None] * nodes).sum(0)
    gate = torch.sigmoid(linear(own, "blend", torch.cat([found, graph])))
    return F.normalize(gate * found + (1 - gate) * graph, dim=0)


@pytest.mark.parametrize("training", [False, True], ids=["to recommend", "in training"])
@pytest.mark.parametrize("session", SESSIONS, ids=str)
@torch.no_grad()
def test_every_prefix_is_encoded_as_if_it_were_the_session(session: list[int], training: bool) -> None:
    local = program("hearint", apart=APART)
    tensors = drawn(local, 1)
    found = scores(local, tensors, session, training)
    table = F.normalize(tensors["item"], dim=-1)
    for n in range(1, len(session) + 1):
        assert_same(found[n - 1], table @ literally(tensors, session[:n], APART if training else None))


@pytest.mark.parametrize(
    ("method", "shape"), [("hearint", (1, DIM)), ("miasrec", (LENGTH + 1, DIM + 1)), ("dmi-gnn", (3, DIM + LENGTH))]
)
@torch.no_grad()
def test_a_recommendation_is_the_last_prefixs(method: str, shape: tuple[int, ...]) -> None:
    """Scores of a recommendation, by a user of this shape, are those after the last prefix of a round's window."""
    local, everything = program(method), torch.arange(ITEMS)
    tensors = drawn(local, 2)
    for session in SESSIONS:
        batch = One(everything, everything, everything, everything, history=window(session))
        vectors = local.vectors(tensors, batch)
        user = local.user(tensors, batch, None, vectors)
        assert user.shape == shape
        assert_same(local.score(tensors, batch, vectors, user), scores(local, tensors, session)[-1])


@torch.no_grad()
def test_the_contrast_is_that_of_prefixes_and_their_targets() -> None:
    local = program("hearint", contrast=0.5, contrast_temperature=0.3)
    assert isinstance(local, HearInt)
    tensors, targets = drawn(local, 3), torch.tensor([0, 4, 5, 4, 6])  # the first position is padding
    batch = window(SESSIONS[1][:4])
    batch = type(batch)(**{**vars(batch), "positive": targets})
    made = prefixes(batch.rows(tensors["item"]), batch.label, every=True)
    intents, vectors = local.intents(local.encoder(tensors), made, True), F.normalize(tensors["item"], dim=-1)[targets]
    found = local.beside(made, intents, vectors, batch)
    parts = [(intents[n, 0], int(targets[n])) for n in range(1, 5)] + [
        (vectors[n], int(targets[n])) for n in range(1, 5)
    ]
    total = 0.0
    for n, (one, target) in enumerate(parts):
        partner = (n + 4) % 8
        others = [m for m, (_, its) in enumerate(parts) if its != target or m == partner]
        logits = torch.stack([one @ parts[m][0] for m in others]) / 0.3
        total += float(torch.logsumexp(logits, 0) - one @ parts[partner][0] / 0.3)
    assert found is not None
    assert found.item() == pytest.approx(0.5 * total / 8, rel=1e-4)
