"""Scores for evaluation are those of the program, called for one user."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from edge.ragged import Ragged
from edgefr.engine.scoring import ModelScorer
from export.batches import One, Window
from tests.closeness import assert_same
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, interactions, own_rows, program

POOL = np.arange(0, ITEMS, 2)


def literal(local, shared, private, context: Ragged, user: int, items: np.ndarray, tables=None) -> np.ndarray:
    """The program on the tensors of one user, whose own rows are of `tables`."""
    tensors = {**shared, **{name: value[user] for name, value in private.items()}}
    everything = np.arange(ITEMS)
    tensors |= {n: table.rows(np.full(ITEMS, user), everything) for n, table in (tables or own_rows(local)).items()}
    index = torch.from_numpy(items)
    history = None
    if local.needs_history:
        own = torch.from_numpy(np.asarray(context[user], np.int64))
        history = One(own, own, torch.ones(len(own)), torch.ones(len(own)))
    if local.window is not None:  # right-aligned; where there is nothing stands an item that nobody may look at
        own = own[-local.window :]
        real = torch.cat([torch.zeros(local.window - len(own)), torch.ones(len(own))])
        items = torch.cat([torch.full((local.window - len(own),), ITEMS - 1), own])
        history = Window(items, items, real, real)
    batch = One(index, index, index, index, history)
    vectors = local.vectors(tensors, batch)
    past = None if history is None else local.vectors(tensors, history)
    return local.score(tensors, batch, vectors, local.user(tensors, batch, past, vectors)).numpy()


@pytest.mark.parametrize("variant", VARIANTS)
def test_many_users_at_once_are_scored_like_one(variant: str) -> None:
    """With layers of their own and without, all in one block and one by one."""
    local, context = program(variant), interactions()
    generator = torch.Generator().manual_seed(0)
    shared, private = (
        {name: value + 0.1 * torch.randn(value.shape, generator=generator) for name, value in tensors.items()}
        for tensors in (local.init_shared(1), local.init_private(1, torch.arange(CLIENTS)))
    )
    without = {name: value for name, value in private.items() if not name.startswith("head.")}
    tables = own_rows(local)
    users = np.array([7, 0, CLIENTS // 2, 22])
    items = np.random.default_rng(2).integers(0, ITEMS, (len(users), 9)).astype(np.int32)
    for own in [private] if len(without) == len(private) else [private, without]:
        model = local, shared, own, context
        expected = [
            [literal(*model, user, pool) for user, pool in zip(users, pools, strict=True)]
            for pools in (items.astype(np.int64), [POOL] * len(users))
        ]
        for values_per_block in (1 << 24, 1):
            score = ModelScorer(*model, POOL, ITEMS, torch.device("cpu"), values_per_block, tables)
            some, every = score(users, items), score(users, None)
            assert every.shape == (len(users), len(POOL))
            for row in range(len(users)):
                assert_same(some[row], expected[0][row])
                assert_same(every[row], expected[1][row])
            assert some.std() > 1e-3
            tile = score.in_tiles(users)
            assert (tile is None) == (not local.pointwise or bool(tables))
            if tile is not None:
                assert_same(np.concatenate([tile(0, 5), tile(5, len(POOL))], axis=1), every)


def test_a_user_without_history_is_scored_zero_by_the_mean() -> None:
    local = program("transfr mean")
    shared, private = local.init_shared(1), local.init_private(1, torch.arange(CLIENTS))
    score = ModelScorer(local, shared, private, Ragged.empty(CLIENTS), POOL, ITEMS, torch.device("cpu"))
    assert (score(np.array([3]), None) == 0).all()


@pytest.mark.parametrize("variant", ["fedmf", "fedncf", "pfedrec", "anchored pfedrec"])
def test_a_pool_of_shared_vectors_takes_one_product_of_matrices(variant: str) -> None:
    """A product per client reads the whole table for each: 25 times slower at 1,152 items."""
    local = program(variant)
    shared, private = local.init_shared(1), local.init_private(1, torch.arange(CLIENTS))
    score = ModelScorer(local, shared, private, Ragged.empty(CLIENTS), POOL, ITEMS, torch.device("cpu"))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        score(np.arange(CLIENTS), None)
    times = {event.key: event.count for event in seen.key_averages()}
    assert times["aten::mm"] == 1
    assert "aten::bmm" not in times


@pytest.mark.parametrize("pool", [np.arange(ITEMS), np.arange(ITEMS)[::-1].copy(), np.array([5, 0, ITEMS - 1])])
def test_the_pool_is_scored_in_its_own_order(pool: np.ndarray) -> None:
    local = program("fedmf")
    shared, private = local.init_shared(1), local.init_private(1, torch.arange(CLIENTS))
    score = ModelScorer(local, shared, private, Ragged.empty(CLIENTS), pool, ITEMS, torch.device("cpu"))
    expected = (private["user"] @ shared["item"].T).numpy()[:, pool]
    np.testing.assert_allclose(score(np.arange(CLIENTS), None), expected, rtol=1e-5, atol=1e-7)
