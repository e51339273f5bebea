from __future__ import annotations

import numpy as np
import torch

from edgefr.engine.optimisers import Optimiser
from tests.closeness import assert_same


def reference(kind: str, start: torch.Tensor, gradients: list[torch.Tensor]) -> torch.Tensor:
    value = start.clone().requires_grad_()
    optimiser = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind]([value], lr=0.03)
    for gradient in gradients:
        value.grad = gradient
        optimiser.step()
    return value.detach()


def test_steps_are_those_of_torch_optim() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(4, 3), [torch.randn(4, 3) for _ in range(6)]
    for kind in ("sgd", "adam"):
        value = start.clone()
        ours = Optimiser(kind, {"w": 0.03}, {"w": value.shape})
        for number, gradient in enumerate(gradients, 1):
            ours.step("w", value, gradient, np.full(4, number))
        assert_same(value, reference(kind, start, gradients))


def test_steps_of_gradients_that_lie_otherwise_in_memory_are_the_same() -> None:
    torch.manual_seed(3)
    start, wide = torch.randn(4, 3), [torch.randn(3, 4), torch.randn(1, 3)]
    gradients = [wide[0].T, wide[1].expand(4, 3)]
    value, ours = start.clone(), Optimiser("adam", {"w": 0.03}, {"w": start.shape})
    for number, gradient in enumerate(gradients, 1):
        ours.step("w", value, gradient, np.full(4, number))
    assert_same(value, reference("adam", start, [gradient.clone() for gradient in gradients]))


def test_each_client_counts_its_own_steps() -> None:
    """Clients 0 and 1 take three steps, client 2 takes one: a prefix of the tensor moves."""
    torch.manual_seed(1)
    start, gradients = torch.randn(3, 2), [torch.randn(3, 2) for _ in range(3)]
    value = start.clone()
    ours = Optimiser("adam", {"w": 0.03}, {"w": value.shape})
    for number, gradient in enumerate(gradients, 1):
        active = 3 if number == 1 else 2
        steps = np.full(active, number)
        ours.step("w", value[:active], gradient[:active], steps, slice(0, active))
    assert_same(value[:2], reference("adam", start[:2], [g[:2] for g in gradients]))
    assert_same(value[2:], reference("adam", start[2:], [gradients[0][2:]]))


def test_rows_that_a_step_does_not_read_keep_their_moments() -> None:
    torch.manual_seed(2)
    value = torch.randn(3, 2)
    sparse = torch.optim.SparseAdam([parameter := value.clone().requires_grad_()], lr=0.03)
    ours = Optimiser("adam", {"w": 0.03}, {"w": value.shape})
    for number, rows in enumerate(([0, 2], [1], [0, 1]), 1):
        at, gradient = torch.tensor(rows), torch.randn(len(rows), 2)
        parameter.grad = torch.sparse_coo_tensor(at[None], gradient, (3, 2))
        sparse.step()
        part = value[at]
        ours.step("w", part, gradient, np.full(len(rows), number), at)
        value[at] = part
    assert_same(value, parameter)
