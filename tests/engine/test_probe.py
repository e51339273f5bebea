"""The start-up probe on models of layers, whose gradients opacus takes by hooks or never forms (ghost clipping)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from edgefr.engine.executors.dp_sgd_probe import Gradients, probe
from privacy.errors import InputError

ITEMS, WIDTH = 12, 6
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
RECORDS = torch.tensor([[0, 3], [1, 3], [2, 7], [0, 5]])
"""Pairs of items, which attract."""


class Twice(nn.Module):
    """The same layer called twice: hooks add both calls up."""

    def __init__(self) -> None:
        super().__init__()
        self.item = nn.Embedding(ITEMS, WIDTH)

    def forward(self, records: Tensor) -> Tensor:
        return (self.item(records[:, 0]) * self.item(records[:, 1])).sum(-1)


class Past(Twice):
    """Reads the table once by its layer and once past it: hooks see the first alone."""

    def forward(self, records: Tensor) -> Tensor:
        scores = self.item(records[:, 0]) @ self.item.weight.T
        return scores.gather(1, records[:, 1:]).squeeze(1)


class Tied(Twice):
    """Two layers that share a tensor: exact with hooks, not with ghost clipping."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, ITEMS, bias=False)
        self.out.weight = self.item.weight

    def forward(self, records: Tensor) -> Tensor:
        return self.out(self.item(records[:, 0])).gather(1, records[:, 1:]).squeeze(1)


class Centred(Twice):
    """Takes half of the batch's mean score off: each example moves every gradient."""

    def forward(self, records: Tensor) -> Tensor:
        scores = super().forward(records)
        return scores - 0.5 * scores.mean()


class Normalised(Twice):
    """Batch normalisation without running statistics, which has no buffers for opacus to stumble over."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, affine=False, track_running_stats=False)

    def forward(self, records: Tensor) -> Tensor:
        return (self.norm(self.item(records).flatten(0, 1)).view(len(records), 2, WIDTH)).prod(1).sum(-1)


def loss_of(scores: Tensor) -> Tensor:
    return nn.functional.softplus(-scores)


def model(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def wrapped(kind: type[nn.Module], ghost: bool, clip: float) -> tuple[Any, Any]:
    """Module and optimiser as opacus makes them, without noise."""
    inner = model(kind)
    options: dict[str, Any] = {"noise_multiplier": 0.0, "max_grad_norm": clip, "expected_batch_size": 1}
    sgd = torch.optim.SGD(inner.parameters(), lr=1.0)
    if ghost:
        return GradSampleModuleFastGradientClipping(inner, max_grad_norm=clip), DPOptimizerFastGradientClipping(
            sgd, **options
        )
    return GradSampleModule(inner), DPOptimizer(sgd, **options)


@dataclass
class Layers:
    """A module of layers as the probe asks for it."""

    kind: type[nn.Module]
    ghost: bool = False

    def step(self, records: Tensor, clip: float) -> Gradients:
        module, optimiser = wrapped(self.kind, self.ghost, clip)
        optimiser.expected_batch_size = len(records)
        optimiser.zero_grad()
        if self.ghost:
            criterion = DPLossFastGradientClipping(module, optimiser, _Mean(), "mean")
            criterion(module(records), torch.zeros(len(records))).backward()
        else:
            loss_of(module(records)).mean().backward()
        optimiser.pre_step()
        return {"item.weight": module._module.item.weight.grad}

    def each(self, records: Tensor) -> Gradients | None:
        if self.ghost:
            return None
        module, _ = wrapped(self.kind, False, 1.0)
        loss_of(module(records)).mean().backward()
        return {"item.weight": module._module.item.weight.grad_sample}

    def plain(self, records: Tensor) -> Gradients:
        inner = model(self.kind)
        loss_of(inner(records)).mean().backward()
        return {"item.weight": inner.item.weight.grad}  # type: ignore[union-attr]


class _Mean(nn.Module):
    """The loss with the reduction that ghost clipping sets."""

    reduction = "mean"

    def forward(self, scores: Tensor, label: Tensor) -> Tensor:
        return loss_of(scores) if self.reduction == "none" else loss_of(scores).mean()


@pytest.mark.parametrize(("kind", "ghost"), [(Twice, False), (Tied, False)])
def test_sound_models_pass(kind: type[nn.Module], ghost: bool) -> None:
    """They are asked everything all the same: a step of each record and, of all together, gradients of two kinds."""
    asked = Counter[tuple[str, int]]()

    @dataclass
    class Asked(Layers):
        def step(self, records: Tensor, clip: float) -> Gradients:
            asked["step", len(records)] += 1
            return super().step(records, clip)

        def each(self, records: Tensor) -> Gradients | None:
            asked["each", len(records)] += 1
            return super().each(records)

        def plain(self, records: Tensor) -> Gradients:
            asked["plain", len(records)] += 1
            return super().plain(records)

    probe("a model", Asked(kind, ghost), RECORDS)
    assert asked == {("step", 1): 4, ("each", 4): 1, ("plain", 1): 4, ("plain", 4): 1}


@pytest.mark.parametrize(
    ("kind", "ghost", "question"),
    [
        (Past, False, "tensor item.weight fails probe 'single'"),
        (Past, True, "tensor item.weight fails probe 'single'"),
        (Twice, True, "cannot be kept for a model"),
        (Tied, True, "cannot be kept for a model"),
        (Centred, False, "tensor item.weight fails probe 'loop'"),
        (Normalised, False, "tensor item.weight fails probe"),
    ],
)
def test_models_that_fool_opacus_are_refused(kind: type[nn.Module], ghost: bool, question: str) -> None:
    with pytest.raises(InputError, match=question) as caught:
        probe("a model", Layers(kind, ghost), RECORDS)
    assert "\n" not in str(caught.value)


def test_ghost_clipping_of_a_table_read_past_its_layer_is_longer_than_the_clip() -> None:
    with pytest.raises(InputError, match=r"a step is 1\.[1-9]\d* times the clip"):
        probe("a model", Layers(Past, ghost=True), RECORDS)


def test_the_probe_asks_about_single_gradients_too() -> None:
    """A model that is right for one record and wrong for several."""

    class Swapped(Layers):
        def each(self, records: Tensor) -> Gradients | None:
            found = super().each(records)
            return found and {name: value.flip(0) for name, value in found.items()}

    with pytest.raises(InputError, match=r"tensor item\.weight fails probe 'loop'"):
        probe("a model", Swapped(Twice), RECORDS)


def test_a_model_without_gradients_cannot_be_probed() -> None:
    class Still(Layers):
        def plain(self, records: Tensor) -> Gradients:
            return {name: torch.zeros_like(value) for name, value in super().plain(records).items()}

    with pytest.raises(InputError, match="zeros or not finite"):
        probe("a model", Still(Twice), RECORDS)
