"""Clients that learn from sessions: all of a shard in one call is what each would do alone, in every variant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from edgefr.engine import debug, inline
from edgefr.engine.work import Updates
from tests.closeness import after_training, assert_all_same
from tests.contract.sessions import CLIENTS, ITEMS, VARIANTS, private_of, program, work

every = pytest.mark.parametrize("variant", VARIANTS)
EVERYONE = np.arange(CLIENTS)


def tables(updates: Updates, clients: int) -> dict[str, torch.Tensor]:
    """Everything that clients hand back and keep, as dense tensors [C, ...]."""
    out = dict(updates.dense) | {f"private {name}": value for name, value in updates.private.items()}
    for name, rows in updates.rows.items():
        out[name] = rows.values.new_zeros(clients, ITEMS, rows.values.shape[1])
        out[name][rows.client, rows.rows] = rows.values
    return out if updates.message is None else {**out, "message": updates.message}


def run(
    executor: Callable[..., Updates], variant: str, clients: np.ndarray, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    local = program(variant)
    shared, private = (
        {n: v.to(dtype) for n, v in part.items()} for part in (local.init_shared(3), private_of(local, clients))
    )
    return tables(executor(work(local), shared, private, clients), len(clients))


def bounds(variant: str) -> dict[str, float]:
    """Three epochs of one step; what `assert_same` has to know of it."""
    local = program(variant)
    return after_training(local.phases, 3, local.init_shared(3), private_of(local, EVERYONE))


@every
def test_vectorised_equals_the_loop(variant: str) -> None:
    clients = np.random.default_rng(0).permutation(CLIENTS)
    fast, slow = (run(executor, variant, clients, torch.float64) for executor in (inline.run, debug.run))
    assert fast.keys() == slow.keys()
    assert_all_same(fast, slow, **bounds(variant))
    moved = {name for name, value in slow.items() if value.abs().max() > 1e-4}
    assert {"item", *(n for n in program(variant).specs if n.endswith("weight") and n.startswith("enc"))} <= moved


@every
@pytest.mark.parametrize("size", [1, 4])
def test_results_do_not_depend_on_the_number_of_clients_in_a_call(variant: str, size: int) -> None:
    whole = run(inline.run, variant, EVERYONE, torch.float64)
    parts = [run(inline.run, variant, EVERYONE[at : at + size], torch.float64) for at in range(0, CLIENTS, size)]
    joined = {name: torch.cat([part[name] for part in parts]) for name in whole}
    assert_all_same(joined, whole, **bounds(variant))


@every
def test_the_same_call_gives_the_same_bits(variant: str) -> None:
    first, second = (run(inline.run, variant, EVERYONE) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@every
@pytest.mark.parametrize("clients", [EVERYONE, EVERYONE[2:3]], ids=["a shard", "a client"])
@pytest.mark.parametrize("executor", [inline.run, debug.run])
def test_broadcast_and_private_store_are_left_alone(variant: str, clients: np.ndarray, executor: Callable) -> None:
    local = program(variant)
    shared, private = local.init_shared(3), private_of(local, clients)
    before = {name: value.clone() for name, value in {**shared, **private}.items()}
    executor(work(local), shared, private, clients)
    assert all(torch.equal(before[name], value) for name, value in {**shared, **private}.items())


@pytest.mark.parametrize("variant", ["sasrec", "gru4rec", "tisasrec", "fcucr", "fcucr as released"])
@pytest.mark.parametrize("broken", [0, 4])
def test_a_client_whose_values_are_no_numbers_harms_nobody_else(variant: str, broken: int) -> None:
    """Client 4 has no padding; client 0 is the first of the shard."""
    local = program(variant)
    if variant in ("sasrec", "gru4rec", "tisasrec"):  # nothing private: its update is spoilt after the first step
        local = program(variant, lr=1e-3, personal=True)
    shared, private = local.init_shared(3), private_of(local, EVERYONE)
    expected = tables(inline.run(work(local), shared, private, EVERYONE), CLIENTS)
    private["prediction.1.bias"][broken] = torch.nan
    found = tables(inline.run(work(local), shared, private, EVERYONE), CLIENTS)
    others = broken != EVERYONE
    for name, value in found.items():
        assert torch.equal(value[others], expected[name][others]), name
    assert found["item"][broken].isnan().any()
