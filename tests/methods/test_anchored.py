"""Reg's term against sums written out, and what must not be pulled."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgefr.engine.executors import inline
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.pfedrec.program import PFedRec
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.methods.regularised import Anchored, anchors
from export.batches import One
from tests.contract.programs import program, work

ITEM, PAST = [[1.0, 2.0], [0.0, 0.0], [3.0, 1.0], [5.0, 5.0]], [[1.0, 0.0], [2.0, 2.0], [0.0, 0.0], [9.0, 9.0]]


def fedmf() -> FedMF:
    return FedMF(FedMFSettings(dim=2, init_scale=0.5), 4, 1)


def tensors(known: float) -> dict[str, Tensor]:
    """A client with item rows and their past; item 2 has none, and item 3 is not among the examples."""
    return {
        "item": torch.tensor(ITEM),
        "previous.item": torch.tensor(PAST),
        "user": torch.tensor([0.5, -1.0]),
        "previous.user": torch.tensor([0.0, 1.0]),
        "previous.known": torch.tensor([known]),
    }


def batch(weight: list[float]) -> One:
    items = torch.tensor([0, 1, 2])
    return One(items, items, torch.tensor([1.0, 0.0, 0.0]), torch.tensor(weight))


@pytest.mark.parametrize("known", [1.0, 0.0])
def test_the_term_written_out(known: float) -> None:
    plain, given_ = fedmf(), tensors(known)
    held = Anchored(plain, 0.3)
    (phase,) = held.phases
    examples = batch([0.25, 0.5, 0.25])  # item 1 was drawn twice
    rows = 0.25 * (0.0 + 4.0) / 2 + 0.5 * (4.0 + 4.0) / 2  # mean over examples of the mean over the width
    user = (0.25 + 4.0) / 2
    expected = float(plain.loss(given_, examples, plain.phases[0])) + known * 0.3 * (rows + user)
    assert float(held.loss(given_, examples, phase)) == pytest.approx(expected, rel=1e-6)


def test_new_items_and_new_clients_have_no_pull() -> None:
    plain = fedmf()
    held = Anchored(plain, 0.3)
    examples = batch([1 / 3] * 3)

    def gradients(program: FedMF | Anchored, known: float) -> tuple[Tensor, Tensor]:
        values = tensors(known)
        leaves = [values[name].requires_grad_() for name in ("item", "user")]
        item, user = torch.autograd.grad(program.loss(values, examples, program.phases[0]), leaves)
        return item, user

    for found, expected in zip(gradients(held, 0.0), gradients(plain, 0.0), strict=True):
        assert torch.equal(found, expected)
    (item, user), (free, free_user) = gradients(held, 1.0), gradients(plain, 1.0)
    assert torch.equal(item[2:], free[2:]), "item 2 has no past, item 3 no example"
    expected = free[0] + 0.3 * (1 / 3) * 2 / 2 * (torch.tensor(ITEM[0]) - torch.tensor(PAST[0]))
    torch.testing.assert_close(item[0], expected)
    torch.testing.assert_close(user, free_user + 0.3 * 2 / 2 * torch.tensor([0.5, -2.0]))


@settings(max_examples=10, deadline=None)
@given(st.floats(0, 10))
def test_without_a_past_a_round_is_that_of_the_program(weight: float) -> None:
    plain, who = program("pfedrec", local_epochs=1), np.arange(5)
    held = Anchored(plain, weight)
    found, expected = (
        inline.run(work(p), p.init_shared(3), p.init_private(3, torch.from_numpy(who)), who) for p in (held, plain)
    )
    assert torch.equal(found.rows["item"].rows, expected.rows["item"].rows)
    assert torch.equal(found.rows["item"].values, expected.rows["item"].values)
    assert found.private.keys() == expected.private.keys()
    assert all(torch.equal(found.private[name], value) for name, value in expected.private.items())


def test_a_phase_feels_the_pull_of_what_it_trains_alone() -> None:
    held = Anchored(PFedRec(PFedRecSettings(dim=2), 4, 1), 0.3)
    scorer, item = held.phases
    assert scorer.uses[3:] == ("previous.scorer.weight", "previous.scorer.bias", "previous.known")
    assert item.uses[3:] == ("previous.item", "previous.known")
    shared = {"item": torch.tensor(ITEM)}
    own = {name: value[0] for name, value in held.program.init_private(1, torch.arange(1)).items()}
    tables, past = anchors(shared, {name: value.unsqueeze(0) for name, value in own.items()}, torch.tensor([True]))
    values = {**shared, **own, **tables, **{name: value[0] for name, value in past.items()}}
    examples = batch([1 / 3] * 3)
    for phase in held.phases:
        before = float(held.loss(values, examples, phase))
        assert before == pytest.approx(float(held.program.loss(values, examples, phase)), rel=1e-6), "nothing has moved"
        for name in ("previous.item", "previous.scorer.weight", "previous.scorer.bias"):
            pulled = float(held.loss(values | {name: values[name] + 1}, examples, phase)) > before + 0.1
            assert pulled == (name.removeprefix("previous.") in phase.trains), (phase.name, name)


def test_anchors_are_copies_of_the_model_without_its_own_anchors() -> None:
    shared = {"item": torch.ones(3, 2), "previous.item": torch.zeros(3, 2)}
    private = {"user": torch.ones(2, 2), "previous.user": torch.zeros(2, 2), "previous.known": torch.zeros(2, 1)}
    known = {"item": torch.tensor([True, False, True])}
    tables, own = anchors(shared, private, torch.tensor([False, True]), known)
    assert {name: value.tolist() for name, value in (tables | own).items()} == {
        "previous.item": [[1, 1], [0, 0], [1, 1]],
        "previous.user": [[1, 1], [1, 1]],
        "previous.known": [[0], [1]],
    }
    shared["item"] += 1
    private["user"] += 1
    assert tables["previous.item"].max() == own["previous.user"].max() == 1
