"""Rows of a client's own: what is held between rounds, through federations, workers, checkpoints and scores."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cloud.settings import AggregationSettings
from edge.ragged import Ragged
from edgefr import checkpoint
from edgefr.engine import debug, inline
from edgefr.engine.crew import Alone, Crew
from edgefr.engine.federation import Federation
from edgefr.engine.processes import Workers
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.tables import PrivateRows, tables_of, tensors_of
from edgefr.methods.program import One
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.contract.programs import CLIENTS, ITEMS, interactions, program, work

EVERYONE = np.arange(CLIENTS)
WRITES = st.lists(st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 4)), st.integers(-9, 9), max_size=9))


def pairs(clients: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(clients), items), np.tile(np.arange(items), clients)


@given(WRITES)
@limits(max_examples=100, deadline=None)
def test_rows_are_what_was_written_last_and_zeros_elsewhere(writes: list[dict[tuple[int, int], int]]) -> None:
    own, known = PrivateRows(items=5, width=2), np.zeros((7, 5), np.float32)
    held: set[tuple[int, int]] = set()
    for write in writes:
        held |= write.keys()
        client, item = (np.array([pair[k] for pair in write], np.int64) for k in (0, 1))
        values = torch.tensor(list(write.values()), dtype=torch.float32)
        own.write(client, item, values.unsqueeze(1).repeat(1, 2))
        known[client, item] = values.numpy()
        for table in (own, own.copy(), pickle.loads(pickle.dumps(own))):  # noqa: S301 (as worker processes do)
            found = table.rows(*pairs(7, 5)).numpy().reshape(7, 5, 2)
            np.testing.assert_array_equal(found, np.stack([known, known], axis=2))
            assert len(table) == len(held)


def test_a_copy_is_apart_from_what_it_was_made_of() -> None:
    own, one = PrivateRows(items=5, width=1), np.array([1])
    own.write(one, one, torch.tensor([[1.0]]))
    before = own.copy()
    own.write(one, one, torch.tensor([[2.0]]))
    assert (before.rows(one, one).item(), own.rows(one, one).item()) == (1.0, 2.0)


def federation(crew: Crew, variant: str = "fedrap", shard_size: int = 6) -> Federation:
    return Federation(
        program(variant),
        clients=CLIENTS,
        seed=3,
        shard_size=shard_size,
        aggregation=AggregationSettings(),
        plan=plan(PrivacySettings(), 5, CLIENTS, CLIENTS, "uniform"),
        device=torch.device("cpu"),
        crew=crew,
    )


def rounds(made: Federation, *numbers: int) -> Federation:
    sampler = work(made.program).sampler
    for number in numbers:
        made.round(number, EVERYONE[number % 3 :: 2], sampler, interactions())
    return made


def same(first: Federation, second: Federation) -> None:
    """To the bit: all tensors, and all rows of the clients' own."""
    found, other = (f.shared | f.private | tensors_of(f.tables) for f in (first, second))
    assert found.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in found.items())


def test_rounds_keep_rows_of_those_who_took_part_alone() -> None:
    made = rounds(federation(Alone(inline.run)), 1)
    own = made.tables["personal"]
    held = own.rows(*pairs(CLIENTS, ITEMS)).view(CLIENTS, ITEMS, -1).abs().sum(2) > 0
    assert not held[[n for n in range(CLIENTS) if n not in EVERYONE[1::2]]].any()
    train = interactions()
    for client in EVERYONE[1::2]:
        assert held[client][train[client].astype(np.int64)].all()  # every positive was read
    assert len(own) == int(held.sum()) < CLIENTS * ITEMS / 2


def test_workers_and_the_loop_keep_the_same_rows() -> None:
    alone = rounds(federation(Alone(inline.run)), 1, 2, 3)
    crew = Workers(2)
    try:
        same(alone, rounds(federation(crew), 1, 2, 3))
    finally:
        crew.close()
    one, other = alone, rounds(federation(Alone(debug.run)), 1, 2, 3)
    for name, value in one.shared.items():
        torch.testing.assert_close(value, other.shared[name], atol=1e-4, rtol=1e-3)
    found, slow = (f.tables["personal"].rows(*pairs(CLIENTS, ITEMS)) for f in (one, other))
    torch.testing.assert_close(found, slow, atol=1e-4, rtol=1e-3)


def test_a_federation_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole, first = rounds(federation(Alone(inline.run)), 1, 2, 3), rounds(federation(Alone(inline.run)), 1, 2)
    checkpoint.write(tmp_path, 2, first.state(), "this")
    kept = checkpoint.newest(tmp_path, "this", warn=print)
    assert kept is not None
    second = federation(Alone(inline.run))
    second.restore(kept.state)
    same(whole, rounds(second, 3))


@pytest.mark.parametrize("block", [1 << 24, 100])
def test_scores_read_the_users_own_rows(block: int) -> None:
    made = rounds(federation(Alone(inline.run)), 1, 2)
    own, pool, users = made.tables["personal"], np.arange(0, ITEMS, 2), np.array([5, 0, 17])
    context, cpu = Ragged.empty(CLIENTS), torch.device("cpu")
    score = ModelScorer(
        made.program,
        made.shared,
        made.private,
        context,
        pool,
        ITEMS,
        cpu,
        block,
        tables=tables_of(made.program, tensors_of(made.tables)),
    )
    candidates = np.random.default_rng(0).integers(0, ITEMS, (3, 7))
    for asked in (None, candidates):
        found = score(users, asked)
        for slot, user in enumerate(users):
            items = torch.from_numpy(pool if asked is None else asked[slot])
            tensors = {**made.shared, **{n: v[user] for n, v in made.private.items()}}
            tensors["personal"] = own.rows(np.full(ITEMS, user), np.arange(ITEMS))
            batch = One(items, items, items, items)
            vectors = made.program.vectors(tensors, batch)
            expected = made.program.score(tensors, batch, vectors, made.program.user(tensors, batch, None, vectors))
            np.testing.assert_allclose(found[slot], expected.numpy(), atol=1e-5, rtol=1e-4)
    plain = ModelScorer(
        made.program, made.shared, made.private, context, pool, ITEMS, cpu, tables=program_without(made)
    )
    assert np.abs(plain(users, None) - score(users, None)).max() > 1e-3


def program_without(made: Federation) -> dict[str, PrivateRows]:
    return {name: PrivateRows(table.items, table.width) for name, table in made.tables.items()}
