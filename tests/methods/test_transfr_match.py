"""TransFR's f of Eq. 13: an MLP of user and item in the place of their inner product."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgefr.methods.losses import scores_of
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One

OWN: dict[str, Any] = {"adapter": [5], "head": [5], "adapter_init": "random", "head_form": "plain", "match": "neural"}
MATCH = {f"match.{k}.{part}" for k in (0, 1) for part in ("weight", "bias")}


def made(user_encoder: str, text: Tensor) -> tuple[TransFR, dict[str, Tensor]]:
    """The program, and random tensors of one client in the place of its first ones, some of which are zeros."""
    program = TransFR(TransFRSettings.model_validate({**OWN, "user_encoder": user_encoder}), text, local_epochs=1)
    drawn = torch.Generator().manual_seed(1)
    return program, {name: torch.randn(spec.shape, generator=drawn) for name, spec in program.specs.items()}


@pytest.mark.parametrize("user_encoder", ["vector", "mean"])
def test_a_neural_match_scores_by_an_mlp_of_user_and_item(user_encoder: str) -> None:
    text = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    program, tensors = made(user_encoder, text)
    items, had, ones = torch.tensor([1, 4, 5]), torch.tensor([0, 2]), torch.ones(3)
    past = One(had, had, ones[:2], ones[:2]) if program.needs_history else None
    batch = One(items, items, ones, ones, history=past)
    found = scores_of(program, tensors, batch)
    q = text @ tensors["adapter.0.weight"] + tensors["adapter.0.bias"]
    q = q @ tensors["head.0.weight"] + tensors["head.0.bias"]
    user = q[had].mean(0) if user_encoder == "mean" else tensors["user"]
    both = torch.cat([user.expand(3, -1), q[items]], dim=1)
    hidden = torch.relu(both @ tensors["match.0.weight"] + tensors["match.0.bias"])
    torch.testing.assert_close(found, (hidden @ tensors["match.1.weight"] + tensors["match.1.bias"]).squeeze(1))


def test_rounds_train_the_match_and_local_training_leaves_it() -> None:
    program, _ = made("mean", torch.zeros(6, 4))
    federated, local = program.phases
    assert set(federated.trains) >= MATCH
    assert set(local.uses) >= MATCH
    assert not MATCH & set(local.trains)
    assert set(program.specs) >= MATCH == set(program.init_shared(0)) - {"adapter.0.weight", "adapter.0.bias"}
    assert program.layers_of(federated) is None, "the compiled layers take an inner product"
