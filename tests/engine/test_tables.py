"""Rows of a client's own: what is held between rounds, through federations, workers, checkpoints and scores."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from edgefr.engine.backends.backend import Backend, InProcess
from edgefr.engine.backends.processes import Workers
from edgefr.engine.cohort import Group
from edgefr.engine.executors import debug, inline
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.engine.tables import PrivateRows, tensors_of
from tests.closeness import assert_same
from tests.contract.programs import CLIENTS, ITEMS, interactions, program, work
from tests.federations import federation as made_federation

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
        for table in (own, pickle.loads(pickle.dumps(own))):  # noqa: S301 (as worker processes do)
            found = table.rows(*pairs(7, 5)).numpy().reshape(7, 5, 2)
            np.testing.assert_array_equal(found, np.stack([known, known], axis=2))
            assert len(table) == len(held)


def federation(backend: Backend, variant: str = "fedrap", rule: str = "mean") -> Federation:
    return made_federation(program(variant), CLIENTS, {"rule": rule}, rounds=5, shard_size=6, backend=backend)


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
    made = rounds(federation(InProcess(inline.run)), 1)
    own = cast(PrivateRows, made.tables["personal"])
    held = own.rows(*pairs(CLIENTS, ITEMS)).view(CLIENTS, ITEMS, -1).abs().sum(2) > 0
    assert not held[[n for n in range(CLIENTS) if n not in EVERYONE[1::2]]].any()
    train = interactions()
    for client in EVERYONE[1::2]:
        assert held[client][train[client].astype(np.int64)].all()  # every positive was read
    assert len(own) == int(held.sum()) < CLIENTS * ITEMS / 2


KINDS = [("fedrap", "mean"), ("gpfedrec", "graph")]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    made.close()


@pytest.mark.parametrize(("variant", "rule"), KINDS)
def test_workers_and_the_loop_keep_the_same_rows(variant: str, rule: str, workers: Workers) -> None:
    alone = rounds(federation(InProcess(inline.run), variant, rule), 1, 2, 3)
    same(alone, rounds(federation(workers, variant, rule), 1, 2, 3))
    slow = rounds(federation(InProcess(debug.run), variant, rule), 1, 2, 3)
    for name, value in alone.shared.items():
        assert_same(value, slow.shared[name], name=name)
    for name, table in alone.tables.items():
        found, expected = (held.rows(*pairs(CLIENTS, ITEMS)) for held in (table, slow.tables[name]))
        assert_same(found, expected, name=name)


def literal_graph(before: torch.Tensor, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """GPFedRec's server with every client's whole table [clients, items, width]: what each gets, and their mean."""
    flat = whole.double().flatten(1)
    unit = flat / flat.norm(dim=1, keepdim=True)
    alike = unit @ unit.T
    near = (alike > alike.mean()).double()
    made = torch.einsum("uv,viw->uiw", near / near.sum(1, keepdim=True), whole.double())
    return made, made.mean(0)


def test_what_clients_get_and_the_broadcast_are_those_of_whole_tables() -> None:
    """Two rounds of half the clients each; nobody's table is laid out but here."""
    made = federation(InProcess(inline.run), "gpfedrec", rule="graph")
    for number in (1, 2):
        cohort = EVERYONE[number % 3 :: 2]
        before = made.shared["item"].clone()
        todo = work(made.program)
        own = {name: value[torch.from_numpy(cohort)] for name, value in made.private.items()}
        job = replace(todo, round=number, tables=dict(made.tables))
        changes = inline.run(job, made.shared, own, cohort).rows["item"]
        whole = before.repeat(len(cohort), 1, 1)
        whole[changes.client, changes.rows] += changes.values
        personal, mean = literal_graph(before, whole)
        rounds(made, number)
        assert_same(made.shared["item"], mean)
        got = made.tables["received.item"].rows(*pairs(CLIENTS, ITEMS)).view(CLIENTS, ITEMS, -1)
        assert_same(got[torch.from_numpy(cohort)], personal)
        others = torch.from_numpy(np.setdiff1d(EVERYONE, cohort))
        assert torch.equal(got[others], made.shared["item"].expand(len(others), -1, -1))
        assert float((personal - mean).abs().max()) > 1e-2, "all clients got the same, so nothing was compared"


def test_the_graph_wants_everybody_to_start_from_one_broadcast() -> None:
    made = federation(InProcess(inline.run), "gpfedrec", rule="graph")
    late = [Group(EVERYONE[:3], 1, made.shared), Group(EVERYONE[3:], 1, made.shared)]
    with pytest.raises(ValueError, match="compares tables of one broadcast"):
        made.round(1, late, work(made.program).sampler, interactions())


def test_a_table_of_ones_own_is_sent_down_and_private_rows_are_not() -> None:
    table, counts = ITEMS * 8, np.array([0, 7])
    for variant, tables in (("pfedrec", 1), ("fedrap", 1), ("gpfedrec", 2)):
        local = program(variant)
        sent = round_work(local, local.phases, work(local).sampler, counts, np.zeros(2, np.bool_))
        assert np.all(sent.bytes_down == 4 * table * tables)
        assert np.all(sent.bytes_up == 4 * table)
