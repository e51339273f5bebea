"""Clients that learn from sessions: all of a shard in one call is what each would do alone, in every variant."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefr.engine import inline
from edgefr.engine.work import Updates
from edgefr.testing import check_method
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


@every
def test_every_program_of_sessions_keeps_the_contract(variant: str) -> None:
    """In simulation; `test_session_devices` holds devices to it."""
    check_method(program(variant), skip=["workers", "bundle", "device"])


@every
def test_every_weight_of_the_encoder_learns(variant: str) -> None:
    local = program(variant)
    learned = tables(inline.run(work(local), local.init_shared(3), private_of(local, EVERYONE), EVERYONE), CLIENTS)
    moved = {name for name, value in learned.items() if value.abs().max() > 1e-4}
    assert {"item", *(n for n in local.specs if n.endswith("weight") and n.startswith("enc"))} <= moved


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
