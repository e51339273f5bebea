"""Clients that learn from sessions: all of a shard in one call is what each would do alone, in every variant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from edgefr.engine.executors import inline
from edgefr.engine.executors.sessions import dropped
from edgefr.engine.work import Updates
from export.learning import unlearnable
from tests.contract.sessions import CLIENTS, ITEMS, private_of, program, work

EVERYONE = np.arange(CLIENTS)


def tables(updates: Updates, clients: int) -> dict[str, torch.Tensor]:
    """Everything that clients hand back and keep, as dense tensors [C, ...]."""
    out = dict(updates.dense) | {f"private {name}": value for name, value in updates.private.items()}
    for name, rows in updates.rows.items():
        out[name] = rows.values.new_zeros(clients, ITEMS, rows.values.shape[1])
        out[name][rows.client, rows.rows] = rows.values
    return out if updates.message is None else {**out, "message": updates.message}


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


@pytest.mark.parametrize("variant", ["fcucr to the letter", "fcucr to the letter, own starts", "sasrec"])
def test_what_a_device_cannot_do_is_refused_before_training(variant: str) -> None:
    why = unlearnable(program(variant))
    assert why == (
        None if variant == "sasrec" else "fcucr asks about the session that a client meets next, which no device knows"
    )
    for change, words in (
        ({"dice_running": True}, "forward pass leaves (prediction.mean)"),
        ({"prototypes": "trained", "prototype_of": "last_step"}, "forward pass leaves (sent)"),
        ({"dropout": 0.1}, "drops values"),
    ):
        assert words in str(unlearnable(program("fcucr", **change)))


def test_own_starts_are_the_first_rounds_alone() -> None:
    """What is trained there is a random net of the client's own; later the broadcast is what everybody begins with."""
    local = program("fcucr to the letter, own starts", lr=1e-12)
    shared, private = local.init_shared(3), private_of(local, EVERYONE)
    first, later = (replace(work(local), round=number) for number in (1, 2))
    seen = []
    for todo in (first, later):
        begun = dict[str, torch.Tensor]()
        learned = local.learned

        def watched(tensors, batch, phase, begun=begun, learned=learned):
            for name in ("item", "encoder.position"):
                begun.setdefault(name, tensors[name].detach().clone())
            return learned(tensors, batch, phase)

        local.learned = watched  # type: ignore[method-assign]
        moved = tables(inline.run(todo, shared, private, EVERYONE), CLIENTS)
        local.learned = learned  # type: ignore[method-assign]
        assert moved["encoder.position"].abs().max() < 1e-6, "an update is what was learned, not where it began"
        assert moved["item"].abs().max() < 1e-6
        seen.append(begun)
    assert (seen[0]["encoder.position"][0] != seen[0]["encoder.position"][1]).all()
    assert (seen[1]["encoder.position"] == shared["encoder.position"]).all()
    spread = (2 / (ITEMS + local.settings.dim)) ** 0.5
    assert seen[0]["item"].std() == pytest.approx(spread, rel=0.1)
    assert local.init_shared(3)["encoder.0.attention.query.weight"].std() < 0.6 * seen[0]["encoder.position"].std()


def test_dropped_values_are_keyed_and_as_many_as_asked() -> None:
    local = program("fcucr to the letter")
    base = dropped(local, 5, 2, 0, EVERYONE, torch.device("cpu"))
    assert {site: tuple(values.shape[1:]) for site, values in base.items()} == local.encoder.sites()
    for seed, number, at in ((6, 2, 0), (5, 3, 0), (5, 2, 1)):
        other = dropped(local, seed, number, at, EVERYONE, torch.device("cpu"))
        assert any(not torch.equal(other[site], values) for site, values in base.items())
    alone = dropped(local, 5, 2, 0, EVERYONE[[4]], torch.device("cpu"))
    assert all(torch.equal(alone[site][0], values[4]) for site, values in base.items())
    every = torch.cat(
        [values.flatten() for values in dropped(local, 5, 2, 0, np.arange(400), torch.device("cpu")).values()]
    )
    assert set(every.unique().tolist()) == {0.0, 1.25}
    assert float((every == 0).double().mean()) == pytest.approx(0.2, abs=0.01)
    assert dropped(program("fcucr"), 5, 2, 0, EVERYONE, torch.device("cpu")) == {}
