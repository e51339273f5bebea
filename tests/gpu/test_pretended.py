"""The pretended GPU refuses what a GPU refuses, and counts what makes the host wait for one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.gpu.pretended import GPU, Pretended

WAITS: dict[str, Callable[[Tensor], object]] = {
    "_local_scalar_dense": lambda x: x.sum().item(),
    "copy": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(),
    "index": lambda x: x[x > 1],
    "index_put_": lambda x: x.clone().__setitem__(x > 1, x[0]),
    "masked_select": lambda x: x.masked_select(x > 1),
    "_unique2": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.long().bincount(minlength=9),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x.long()),
    "equal": lambda x: torch.equal(x, x.clone()),
}
FREE: dict[str, Callable[[Tensor], object]] = {
    "a copy that nobody waits for": lambda x: x.to("cpu", non_blocking=True),
    "a choice by a mask": lambda x: torch.where(x > 1, x, 0.0),
    "a known size": lambda x: torch.repeat_interleave(x, x.long(), output_size=6),
    "rows by their numbers": lambda x: x[x.long() - 1],
    "a sum in order": lambda x: torch.zeros_like(x).index_put_((x.long() - 1,), x, accumulate=True),
    "numbers made there": lambda x: torch.arange(3, device=x.device) + x,
}


def numbers(gpu: Pretended) -> Tensor:
    found = torch.tensor([1.0, 2.0, 3.0]).to(GPU)
    gpu.waits.clear()
    return found


@pytest.mark.parametrize("kind", WAITS)
def test_what_makes_the_host_wait_is_counted_with_its_place(kind: str) -> None:
    with Pretended() as gpu:
        WAITS[kind](numbers(gpu))
    assert list(gpu.waits) == [f"tests/gpu/test_pretended.py:<lambda>: {kind}"]


@pytest.mark.parametrize("kind", FREE)
def test_what_does_not_is_not_counted(kind: str) -> None:
    with Pretended() as gpu:
        FREE[kind](numbers(gpu))
    assert not gpu.waits


def test_tensors_of_two_devices_are_not_mixed_and_the_host_sees_no_memory() -> None:
    with Pretended() as gpu:
        x = numbers(gpu)
        with pytest.raises(RuntimeError, match="of tensors on the GPU and of others on the host"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match="numpy"):
            x.numpy()
        assert (x * torch.tensor(2.0)).tolist() == [2.0, 4.0, 6.0], "a number of the host goes along"


def test_gradients_and_views_are_those_of_the_host() -> None:
    with Pretended() as gpu:
        x = numbers(gpu)
        x.view(3, 1)[1:] += 1
        leaf = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((leaf * leaf).sum(), [leaf])
        assert slope.device == GPU
        assert slope.tolist() == [2.0, 6.0, 8.0]
