"""What is simulated in bulk is what one client would do: every method, vectorised against the plain loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from edgefr.engine import debug, inline
from edgefr.engine.work import Updates
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, program, work
from tests.contract.programs import (
    test_every_method_of_the_table_has_a_variant as test_every_method_of_the_table_has_a_variant,
)

CASES = [(v, w) for v in VARIANTS for w in ("round", "final") if any(p.when == w for p in program(v).phases)]


def dense(updates: Updates, clients: int) -> dict[str, torch.Tensor]:
    """Every update as a dense tensor per client."""
    out = dict(updates.dense)
    for name, rows in updates.rows.items():
        table = torch.zeros(clients, ITEMS, rows.values.shape[1])
        table[rows.client, rows.rows] = rows.values
        out[name] = table
    return out | {f"private {name}": value for name, value in updates.private.items()}


def run(executor, variant: str, when: str, clients: np.ndarray, **options) -> dict[str, torch.Tensor]:
    local = program(variant)
    shared, private = local.init_shared(3), local.init_private(3, torch.from_numpy(clients))
    return dense(executor(work(local, when, **options), shared, private, clients), len(clients))


@pytest.mark.parametrize(("variant", "when"), CASES)
@pytest.mark.parametrize("batch_size", [7, 64])
def test_vectorised_equals_the_loop(variant: str, when: str, batch_size: int) -> None:
    clients = np.random.default_rng(0).permutation(CLIENTS)
    fast = run(inline.run, variant, when, clients, batch_size=batch_size)
    slow = run(debug.run, variant, when, clients, batch_size=batch_size)
    assert fast.keys() == slow.keys()
    moved = 0.0
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
        moved = max(moved, float(fast[name].abs().max()))
    assert moved > 1e-3, "nothing was learned, so nothing was compared"


@pytest.mark.parametrize(("variant", "when"), CASES)
def test_results_do_not_depend_on_the_number_of_clients_in_a_call(variant: str, when: str) -> None:
    clients = np.arange(CLIENTS)
    whole = run(inline.run, variant, when, clients)
    for size in (1, 4):
        parts = [run(inline.run, variant, when, clients[at : at + size]) for at in range(0, CLIENTS, size)]
        for name, value in whole.items():
            joined = torch.cat([part[name] for part in parts])
            torch.testing.assert_close(joined, value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_call_gives_the_same_bits(variant: str) -> None:
    clients = np.arange(CLIENTS)
    first, second = (run(inline.run, variant, "round", clients) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_client_with_nothing_stays_as_it_is(variant: str) -> None:
    idle = np.array([CLIENTS // 2])
    local = program(variant)
    private = local.init_private(3, torch.from_numpy(idle))
    updates = inline.run(work(local), local.init_shared(3), private, idle)
    assert all(bool((value == 0).all()) for value in updates.dense.values())
    assert all(len(rows.rows) == 0 for rows in updates.rows.values())
    assert all(torch.equal(value, private[name]) for name, value in updates.private.items())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_broadcast_and_the_private_store_are_left_alone(variant: str) -> None:
    local, clients = program(variant), np.arange(CLIENTS)
    shared, private = local.init_shared(3), local.init_private(3, torch.from_numpy(clients))
    before = {n: v.clone() for n, v in {**shared, **private}.items()}
    for executor in (inline.run, debug.run):
        executor(work(local), shared, private, clients)
        assert all(torch.equal(before[n], v) for n, v in {**shared, **private}.items())


def test_sgd_of_the_loop_is_that_of_torch_optim() -> None:
    """The loop itself against torch.optim on a whole dense model: one client, all epochs."""
    local = program("fedmf", local_epochs=2)
    todo = replace(work(local, batch_size=1000))
    who = np.array([0])
    shared, private = local.init_shared(3), local.init_private(3, torch.from_numpy(who))
    found = dense(debug.run(todo, shared, private, who), 1)
    item, user = shared["item"].clone().requires_grad_(), private["user"][0].clone().requires_grad_()
    phase = local.phases[0]
    optimiser = torch.optim.SGD(
        [{"params": [item], "lr": phase.lr["item"]}, {"params": [user], "lr": phase.lr["user"]}]
    )
    for epoch in range(2):
        examples = todo.sampler.epoch(who, phase.name, todo.round, epoch)
        scores = (item[torch.from_numpy(examples.items)] * user).sum(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.from_numpy(examples.label))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.testing.assert_close(found["item"][0], (item - shared["item"]).detach(), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(found["private user"][0], user.detach(), atol=1e-6, rtol=1e-4)
