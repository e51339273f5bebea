"""Steps on tables of which few rows are read are those of Adam on whole tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import embedding

from cloud.references.reference import Steps

ITEMS, WIDTH = 9, 4


def leaves() -> list[Tensor]:
    """A table of which rows are read, one of which more are, and a layer that is read whole."""
    draws = torch.Generator().manual_seed(5)
    shapes = ((ITEMS, WIDTH), (ITEMS, WIDTH), (WIDTH, 3))
    return [torch.randn(shape, generator=draws).requires_grad_() for shape in shapes]


def cost(of: list[Tensor], step: int, sparse: bool) -> Tensor:
    """What a step reads is other rows than the step before, some of them twice, and the second table at two places."""
    one, other, layer = of
    rows = torch.tensor([step % ITEMS, 2, (step * step) % ITEMS, 2])
    read = embedding(rows, one, sparse=sparse) * embedding(rows.flip(0), other, sparse=sparse)
    return (read @ layer).square().sum() + embedding(rows[:1], other, sparse=sparse).sum()


def learned(take: Callable[[Tensor], None], of: list[Tensor], sparse: bool) -> list[Tensor]:
    for step in range(12):
        take(cost(of, step, sparse))
    return [leaf.detach() for leaf in of]


def by_adam() -> list[Tensor]:
    of = leaves()
    adam = torch.optim.Adam(of, 0.05)

    def take(loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()

    return learned(take, of, sparse=False)


@pytest.mark.parametrize("fused", [False, True])
def test_they_end_where_adam_on_whole_tables_does(fused: bool) -> None:
    of = leaves()
    found = learned(Steps(of, 0.05, fused).take, of, sparse=True)
    torch.testing.assert_close(found, by_adam(), rtol=1e-5, atol=1e-6)


def test_rows_that_a_step_did_not_read_move_by_what_they_remember() -> None:
    of = leaves()
    steps = Steps(of, 0.05, fused=True)
    steps.take(embedding(torch.tensor([3]), of[0], sparse=True).sum())
    before = of[0].detach().clone()
    steps.take(embedding(torch.tensor([5]), of[0], sparse=True).sum())
    moved = (of[0].detach() - before).abs().sum(1) > 0
    assert moved.tolist() == [row in (3, 5) for row in range(ITEMS)]
    assert of[0].grad is not None
    assert of[0].grad.sum(1).tolist() == [float(WIDTH) if row == 5 else 0.0 for row in range(ITEMS)]
