"""FedCAR's compiled gradients are those of its loss; forms that are not compiled are left to autograd."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from edgefr.methods.fedcar.program import FedCAR
from edgefr.methods.fedcar.settings import FedCARSettings
from export.batches import Batch, Padded, Pairs
from export.program import LocalProgram, Phase, Tensors

CLIENTS, ROWS, PAIRS, NEGATIVES = 3, 40, 37, 4
"""More pairs than a block has, and not a whole number of blocks."""


def made(seed: int = 0, **settings: Any) -> tuple[FedCAR, dict[str, Tensor], Padded]:
    """Return a program, random tensors of its clients and their batch; some contexts are short, some empty."""
    program = FedCAR(FedCARSettings(**settings), ROWS, 1)
    some, length = torch.Generator().manual_seed(seed), program.settings.context
    tensors = {
        name: 0.4 * torch.randn((CLIENTS, *spec.shape), generator=some) for name, spec in program.specs.items()
    } | {"previous.known": torch.tensor([[1.0], [1.0], [0.0]])}
    tensors["item"] = torch.randn((CLIENTS, ROWS, program.settings.dim), generator=some)

    def places(*shape: int) -> Tensor:
        return torch.randint(ROWS, (CLIENTS, PAIRS, *shape), generator=some)

    had = torch.randint(length + 1, (CLIENTS, PAIRS, 1), generator=some)
    there = (torch.arange(length) >= length - had).float()
    share = torch.full((CLIENTS, PAIRS), 1 / PAIRS)
    share[1, 30:] = 0
    pairs = Pairs(places(), places(NEGATIVES), share, places(length), there)
    label = torch.zeros(CLIENTS, ROWS)
    number = torch.arange(CLIENTS * ROWS).view(CLIENTS, ROWS)
    return program, tensors, Padded(number, number, label, label, pairs=pairs)


def both(program: FedCAR, tensors: Tensors, batch: Batch, phase: Phase) -> list[tuple[str, Tensor, Tensor]]:
    assert program.is_compiled(tensors, batch)
    got = program.gradients(tensors, batch, phase)
    double = {name: value.double() for name, value in tensors.items()}
    pairs = batch.pairs
    assert pairs is not None
    assert pairs.there is not None
    exact = replace(batch, pairs=replace(pairs, share=pairs.share.double(), there=pairs.there.double()))  # type: ignore[type-var]
    want = LocalProgram.gradients(program, double, exact, phase)
    assert list(got) == list(want) == list(phase.trains)
    return [(name, got[name], want[name].float()) for name in got]


@pytest.mark.parametrize(
    "settings",
    [{}, {"context": 1}, {"context": 8, "dim": 12, "feed_forward": 20}, {"negative": "none", "dim": 6}, {"margin": 50}],
    ids=str,
)
def test_they_are_those_of_the_loss_in_double_precision(settings: dict[str, Any]) -> None:
    program, tensors, batch = made(**settings)
    for phase in program.phases:
        for name, got, want in both(program, tensors, batch, phase):
            scale = float(want.abs().max())
            alone = program.settings.context == 1 and name in ("encoder.query", "encoder.key")  # one item has no other
            assert (scale > 0) != alone, (phase.name, name)
            assert float((got - want).abs().max()) <= 2e-5 * scale, (phase.name, name)


def test_a_client_that_knows_no_other_has_nothing_to_contrast() -> None:
    program, tensors, batch = made()
    contrast = program.phases[1]
    for _, got, _ in both(program, tensors, batch, contrast):
        assert not got[2].any()
        assert got[0].any()


def test_what_nobody_is_shown_has_no_gradient() -> None:
    program, tensors, batch = made()
    pairs = batch.pairs
    assert pairs is not None
    none = replace(batch, pairs=replace(pairs, there=torch.zeros_like(pairs.there)))  # type: ignore[arg-type]
    for name, got, want in both(program, tensors, none, program.phases[0]):
        assert torch.allclose(got, want, atol=1e-7), name
        assert name in ("item", "scorer.weight", "scorer.bias") or not got.any()


def test_a_client_that_diverged_is_seen_and_others_are_not_touched() -> None:
    program, tensors, batch = made()
    ill = {name: value.clone() for name, value in tensors.items()}
    ill["item"][1] = float("nan")
    for phase in program.phases:
        well = program.gradients(tensors, batch, phase)
        for name, got in program.gradients(ill, batch, phase).items():
            assert torch.equal(got[0], well[name][0]), name
            assert torch.equal(got[2], well[name][2]), name
            assert not got[1].isfinite().all(), name


@pytest.mark.parametrize(
    "settings",
    [
        {"heads": 2},
        {"norm": "pre"},
        {"norm": "none"},
        {"attention": "projected"},
        {"negative": "vectors"},
        {"negative": "both"},
    ],
    ids=str,
)
def test_other_forms_are_left_to_autograd(settings: dict[str, Any]) -> None:
    program, tensors, batch = made(**settings)
    assert not program.is_compiled(tensors, batch)
    assert not program.is_compiled({**tensors, "item": tensors["item"].double()}, batch)
    for phase in program.phases:
        assert list(program.gradients(tensors, batch, phase)) == list(phase.trains)
