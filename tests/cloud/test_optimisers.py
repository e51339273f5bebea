"""The servers optimisers are those of torch on the negative mean update, the same after a checkpoint, and of a mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from cloud.optimisers import BETA_1, BETA_2, OPTIMISERS, Moments, RunningSum
from cloud.rule import AggregationSettings


def means(rounds: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(3)
    return [torch.from_numpy(rng.standard_normal((4, 3)) * 1e-3) for _ in range(rounds)]


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_it_is_torchs_optimiser_on_the_negative_mean(name: str) -> None:
    value = torch.ones(4, 3, dtype=torch.float64)
    parameter = torch.nn.Parameter(value.clone())
    server, torchs = {
        "adam": (
            Moments(lr=0.05, floor=1e-4),
            torch.optim.Adam([parameter], lr=0.05, betas=(BETA_1, BETA_2), eps=1e-4),
        ),
        "momentum": (RunningSum(lr=0.05, momentum=0.8), torch.optim.SGD([parameter], lr=0.05, momentum=0.8)),
    }[name]
    for mean in means(7):
        value = value + server.step("item", mean)
        parameter.grad = -mean
        torchs.step()
    torch.testing.assert_close(value, parameter.detach(), rtol=1e-12, atol=1e-14)


def test_a_row_that_nobody_changes_stays_even_without_a_floor() -> None:
    mean = torch.tensor([[0.0, 0.0], [1e-9, -1.0]], dtype=torch.float64)
    step = Moments(lr=0.1, floor=0.0).step("item", mean)
    assert step[0].tolist() == [0.0, 0.0]
    assert step[1].tolist() == pytest.approx([0.1, -0.1])


def test_it_goes_on_from_its_state() -> None:
    whole, first, second = (Moments(lr=0.1, floor=1e-5) for _ in range(3))
    every = means(6)
    expected = [whole.step("item", mean) for mean in every][3:]
    for mean in every[:3]:
        first.step("item", mean)
    state = {n: {k: v if k == "steps" else v.numpy() for k, v in kept.items()} for n, kept in first.state().items()}
    second.restore(state, torch.device("cpu"))
    assert all(torch.equal(second.step("item", mean), one) for mean, one in zip(every[3:], expected, strict=True))


def test_an_optimiser_reads_its_own_settings_alone() -> None:
    plain = AggregationSettings(rule="mean")
    assert OPTIMISERS["sgd"].begin(plain) is None
    with pytest.raises(ValidationError, match="optimiser momentum, and optimiser is adam"):
        AggregationSettings(rule="mean", optimiser="adam", momentum=0.5)
    with pytest.raises(ValidationError, match="nothing reads it where optimiser is sgd"):
        AggregationSettings(rule="mean", optimiser_lr=0.5)
    with pytest.raises(ValidationError, match="momentum moves every tensor, and reads optimiser_lr: drop server_lr"):
        AggregationSettings(rule="mean", optimiser="momentum", server_lr=0.5)
    with pytest.raises(ValidationError, match="unknown server optimiser 'adm'; did you mean 'adam'"):
        AggregationSettings(rule="mean", optimiser="adm")
