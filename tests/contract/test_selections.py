"""Which examples a phase asks for: pairs, support and query sets, and contexts are drawn as they are described."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from edge.sampling import Sampler, Selection
from edge.steps import steps_of
from edgefr.engine.executors import debug, inline
from export.program import turns
from privacy.errors import InputError
from tests.contract.programs import CLIENTS, ITEMS, interactions, program, work
from tests.contract.test_executors import Remembered, dense

LENGTH = 5
SAMPLER = work(program("fedcar, context alone")).sampler
assert isinstance(SAMPLER, Sampler)


def test_pairs_keep_the_draws_of_single_examples() -> None:
    sampler = SAMPLER
    for client in range(CLIENTS):
        one = np.array([client])
        plain = sampler.epoch(one, "p", 2, 0)
        paired = sampler.epoch(one, "p", 2, 0, which=Selection(pairs=True))
        assert sorted(plain.items.tolist()) == sorted(paired.items.tolist())
        assert (paired.label.reshape(-1, 4)[:, 0] == 1).all()
        assert not paired.label.reshape(-1, 4)[:, 1:].any()


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_support_and_query_part_a_clients_positives_anew_in_every_round(share: float) -> None:
    sampler, everyone, train = SAMPLER, np.arange(CLIENTS), interactions()

    def part(name: str, number: int, clients: np.ndarray) -> list[set[int]]:
        which = Selection(part=name, support=share)  # type: ignore[arg-type]
        found = sampler.epoch(clients, name, number, 0, which=which)
        rows = np.split(np.arange(len(found.items)), np.cumsum(found.counts)[:-1])
        return [set(found.items[row][found.label[row] == 1].tolist()) for row in rows]

    support, query, later = part("support", 2, everyone), part("query", 2, everyone), part("support", 3, everyone)
    for client in everyone:
        own = set(train[client].tolist())
        assert support[client] | query[client] == own
        assert not support[client] & query[client]
        assert len(support[client]) == int(np.ceil(share * len(own)))
        assert part("support", 2, np.array([client])) == [support[client]]
    assert later != support


def test_what_is_made_anew_owes_nothing_to_the_round_before() -> None:
    local, clients = program("fedrecon"), np.arange(CLIENTS)
    todo = work(local)
    shared, private = local.init_shared(3), local.init_private(3, torch.from_numpy(clients))
    for executor in (inline.run, debug.run):
        first = executor(todo, shared, private, clients)
        other = executor(todo, shared, {"user": private["user"] + 5}, clients)
        again = dense(other, CLIENTS)
        assert all(torch.equal(value, again[name]) for name, value in dense(first, CLIENTS).items())
        later = executor(replace(todo, round=3), shared, private, clients)
        assert not torch.allclose(first.private["user"], later.private["user"])
    alone = inline.run(todo, shared, {"user": private["user"][[4]]}, clients[[4]])
    torch.testing.assert_close(alone.private["user"][0], inline.run(todo, shared, private, clients).private["user"][4])


def test_pairs_have_no_replay() -> None:
    local, clients = program("fedmf by bpr"), np.arange(CLIENTS)
    todo = replace(work(local), memory=Remembered())
    private = {**local.init_private(3, torch.from_numpy(clients)), "memory.labels": torch.zeros(CLIENTS, ITEMS)}
    for executor in (inline.run, debug.run):
        with pytest.raises(InputError, match="compares items in pairs"):
            executor(todo, local.init_shared(3), private, clients)


def test_a_context_is_what_the_client_had_just_before() -> None:
    """By hand: of every positive the items before it in its client's own order, whichever part it is in."""
    sampler, train = SAMPLER, interactions()
    for which in (Selection(pairs=True, context=LENGTH), Selection(pairs=True, context=LENGTH, part="query")):
        found = sampler.epoch(np.arange(CLIENTS), "p", 2, 0, which=which)
        assert found.context is not None
        groups, number = found.items.reshape(-1, 4), 0
        for client, count in enumerate(found.counts // 4):
            own = train[client].tolist()
            for _ in range(count):
                at = own.index(groups[number, 0])
                before = own[max(0, at - LENGTH) : at]
                assert found.context[number].tolist() == [-1] * (LENGTH - len(before)) + before
                number += 1


def test_steps_number_what_contexts_read() -> None:
    """Every entry once; a context's numbers lead to its items, and what is read beside examples weighs nothing."""
    sampler = SAMPLER
    clients = np.argsort(-sampler.train.counts, kind="stable")
    which = Selection(pairs=True, context=LENGTH)
    epochs = [sampler.epoch(clients, "p", 2, epoch, which=which) for epoch in range(2)]
    steps, plain = (
        steps_of(some, 16, ITEMS)
        for some in (epochs, [sampler.epoch(clients, "p", 2, epoch, which=Selection(pairs=True)) for epoch in (0, 1)])
    )
    pairs = steps.pairs
    assert pairs is not None
    assert pairs.context is not None
    assert pairs.there is not None
    for step in range(len(steps.lengths)):
        slots = steps.slots[steps.row[steps.bounds[step] : steps.bounds[step + 1]]] * ITEMS
        assert len(np.unique(slots + steps.items[steps.bounds[step] : steps.bounds[step + 1]])) == len(slots)
    owner = np.repeat(np.arange(len(pairs.positive)), LENGTH).reshape(-1, LENGTH)
    own = steps.slots[steps.row]
    assert (own[pairs.context] == own[pairs.positive][owner]).all()
    assert (steps.items[pairs.context] == steps.items[pairs.positive][owner])[pairs.there == 0].all()
    read = {tuple(row) for epoch in epochs for row in np.c_[epoch.items.reshape(-1, 4)[:, 0], epoch.context].tolist()}
    there = np.where(pairs.there > 0, steps.items[pairs.context], -1)
    assert {tuple(row) for row in np.c_[steps.items[pairs.positive], there].tolist()} == read
    kept = steps.weight > 0
    np.testing.assert_array_equal(steps.items[kept], plain.items)
    np.testing.assert_array_equal(steps.weight[kept], plain.weight)
    np.testing.assert_array_equal(steps.label[kept], plain.label)
    assert not kept.all()


def test_a_context_goes_with_pairs() -> None:
    with pytest.raises(ValueError, match="ask for pairs"):
        Selection(context=LENGTH)


def test_a_phase_that_alternates_shares_its_draws() -> None:
    recommend, contrast = program("fedcar").phases
    with pytest.raises(ValueError, match="'contrast' alternates, but not with a phase of the same draws"):
        turns([replace(recommend, draws="others"), contrast])
