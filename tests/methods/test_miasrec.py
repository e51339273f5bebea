"""MiaSRec against torch's own transformer on one prefix at a time, and its entmax against bisection."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from edgefr.methods.miasrec.program import MiaSRec, entmax
from edgefr.methods.miasrec.settings import MiaSRecSettings
from tests.closeness import assert_same
from tests.methods.prefixed import (
    DIM,
    SESSIONS,
    drawn,
    program,
    scores,
)

VARIANTS = ({}, {"heads": 2, "layers": 2, "repeats": 3, "most": 0.4})


def bisected(z: Tensor) -> Tensor:
    """p = relu(z / 2 - tau)^2 with the tau by which it adds up to 1, found by halving."""
    z = z.double() / 2
    low, high = float(z.max()) - 1.0, float(z.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((z - middle).clamp_min(0).square().sum()) >= 1 else (low, middle)
    return (z - low).clamp_min(0).square()


def layer(settings: MiaSRecSettings, tensors: dict[str, Tensor], k: int) -> torch.nn.TransformerEncoderLayer:
    """Torch's block with these weights."""
    made = torch.nn.TransformerEncoderLayer(
        DIM, settings.heads, DIM, 0.0, F.gelu, layer_norm_eps=1e-8, batch_first=True
    )
    at = {name.removeprefix(f"encoder.{k}."): value for name, value in tensors.items()}
    inside = made.self_attn
    inside.in_proj_weight.data = torch.cat([at["query.weight"].t(), at["memory.weight"].t()])
    inside.in_proj_bias.data = torch.cat([at["query.bias"], torch.zeros(DIM), at["memory.bias"]])
    for mine, its in (("out", inside.out_proj), ("inner", made.linear1), ("outer", made.linear2)):
        its.weight.data, its.bias.data = at[f"{mine}.weight"].t(), at[f"{mine}.bias"]
    for mine, norm in (("attention", made.norm1), ("forward", made.norm2)):
        norm.weight.data, norm.bias.data = at[f"{mine}.scale"], at[f"{mine}.shift"]
    return made


def literally(settings: MiaSRecSettings, tensors: dict[str, Tensor], prefix: list[int]) -> Tensor:
    """One prefix as the paper has it: its mean first, then its items from the newest on."""
    own = {name.removeprefix("encoder."): value for name, value in tensors.items()}
    table = F.normalize(tensors["item"], dim=-1)
    newest = prefix[::-1]
    plain = torch.cat([table[prefix].mean(0, keepdim=True), table[newest]])
    often = [0] + [min(prefix.count(item), settings.repeats) - 1 for item in newest]
    x = plain + own["position"][: len(plain)] + own["frequency"][often]
    x = F.layer_norm(x, (DIM,), own["norm.scale"], own["norm.shift"], 1e-8)
    for k in range(settings.layers):
        x = layer(settings, tensors, k)(x[None])[0]
    gate = torch.sigmoid(torch.cat([plain, x], dim=-1) @ own["gate.weight"] + own["gate.bias"])
    x = gate * plain + (1 - gate) * x
    share = bisected((x @ own["importance"]).squeeze(-1)).float()
    cosines = F.normalize(x, dim=-1) @ table.T
    best = cosines[share > 0].max(0).values
    return settings.most * best + (1 - settings.most) * (share[:, None] * cosines).sum(0)


@pytest.mark.parametrize("settings", VARIANTS, ids=["one block", "two heads and blocks"])
@pytest.mark.parametrize("session", SESSIONS, ids=str)
@torch.no_grad()
def test_every_prefix_is_encoded_as_if_it_were_the_session(session: list[int], settings: dict[str, object]) -> None:
    local = program("miasrec", **settings)
    assert isinstance(local, MiaSRec)
    tensors = drawn(local, 1)
    found = scores(local, tensors, session)
    for n in range(1, len(session) + 1):
        assert_same(found[n - 1], literally(local.settings, tensors, session[:n]))


def test_entmax_is_what_bisection_finds() -> None:
    random = np.random.default_rng(0)
    seen_counts = set()
    for _ in range(50):
        z = torch.from_numpy(random.normal(0, random.choice([0.1, 1.0, 5.0]), 7)).float().round(decimals=1)
        seen = torch.from_numpy((random.random(7) < 0.7) | (np.arange(7) == 3)).float()
        found = entmax(z, seen)
        expected = torch.zeros(7)
        expected[seen > 0] = bisected(z[seen > 0]).float()
        assert_same(found, expected, size=1.0)
        assert found.sum().item() == pytest.approx(1.0, abs=1e-5)
        seen_counts.add(int((found > 0).sum()))
    assert {1, 2, 3} <= seen_counts, "some are left out, by as much as they lie below"


def test_the_gradient_of_entmax_is_the_numerical_one() -> None:
    z = torch.tensor([0.3, -0.2, 1.1, -3.0, 0.9], dtype=torch.float64, requires_grad=True)
    seen = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: entmax(z, seen), (z,))


def test_intents_that_are_left_out_score_nothing() -> None:
    local = program("miasrec", most=1.0)
    intents = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0.0], [0, 1.0, 0, 0, 0, 0, 1.0]])
    assert local.match(intents, torch.eye(DIM)).tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
