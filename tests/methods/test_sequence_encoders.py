"""FCUCR's sequence encoders against torch.nn and plain loops; what padding may change; gradients; a shard = a loop."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgefr.methods.fcucr.encoders import GRU4Rec, SASRec, TiSASRec, intervals
from privacy.errors import InputError
from tests.closeness import assert_same

DIM, LENGTH = 6, 5
Encoder = SASRec | GRU4Rec | TiSASRec
ENCODERS: dict[str, Encoder] = {
    "sasrec": SASRec(DIM, LENGTH),
    "sasrec, two heads and blocks": SASRec(DIM, LENGTH, heads=2, layers=2),
    "sasrec as released": SASRec(DIM, LENGTH, masked=False),
    "gru4rec": GRU4Rec(DIM, LENGTH),
    "tisasrec": TiSASRec(DIM, LENGTH, spans=9),
    "tisasrec, two heads and blocks": TiSASRec(DIM, LENGTH, heads=2, layers=2, spans=9),
}
MASKED = {name: encoder for name, encoder in ENCODERS.items() if name != "sasrec as released"}
every = pytest.mark.parametrize("name", ENCODERS)


def drawn(encoder: Encoder, seed: int, clients: int | None = None) -> dict[str, Tensor]:
    """Values with which nothing is 0 or 1 by chance; `clients` puts a dimension in front."""
    random = np.random.default_rng(seed)
    lead = () if clients is None else (clients,)
    return {
        name: torch.from_numpy(random.normal(0.0, 0.6, (*lead, *shape)).astype(np.float32))
        for name, shape in encoder.specs().items()
    }


def windows(seed: int, lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """x [n, L, d], real, times [n, L]: left-padded windows with noise at padding."""
    random = np.random.default_rng(seed)
    n = len(lengths)
    real = (torch.arange(LENGTH) >= LENGTH - torch.tensor(lengths).unsqueeze(-1)).float()
    x = torch.from_numpy(random.normal(size=(n, LENGTH, DIM)).astype(np.float32))
    times = torch.from_numpy(np.cumsum(random.integers(0, 40, (n, LENGTH)), axis=1).astype(np.float32))
    return x, real, times


# --- oracles --------------------------------------------------------------------------------------------------------


def linear(tensors: Mapping[str, Tensor], name: str) -> torch.nn.Linear:
    weight = tensors[f"{name}.weight"]
    layer = torch.nn.Linear(*weight.shape)
    bias = tensors[f"{name}.bias"]  # of keys and values the values alone have one
    bias = torch.cat([torch.zeros(weight.shape[1] - len(bias)), bias])
    layer.weight.data, layer.bias.data = weight.t().contiguous(), bias
    return layer


def normed(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    scale, shift = tensors[f"{name}.scale"], tensors[f"{name}.shift"]
    return torch.nn.functional.layer_norm(x, (DIM,), scale, shift, 1e-8)


def forwarded(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    x = normed(tensors, f"{name}.norm", x)
    return x + linear(tensors, f"{name}.outer")(linear(tensors, f"{name}.inner")(x).relu())


def sasrec_by_torch(encoder: SASRec, tensors: Mapping[str, Tensor], x: Tensor, real: Tensor) -> Tensor:
    """One window through torch's own attention; padding is left out before, or let in as released."""
    start = 0 if not encoder.masked else int(LENGTH - real.sum())
    x = (x * math.sqrt(DIM) + tensors["position"]) * real.unsqueeze(-1)
    x, n = x[start:], LENGTH - start
    for k in range(encoder.layers):
        at = f"{k}.attention"
        layer = torch.nn.MultiheadAttention(DIM, encoder.heads, batch_first=True)
        parts = [linear(tensors, f"{at}.{part}") for part in ("query", "memory")]
        layer.in_proj_weight.data = torch.cat([part.weight for part in parts]).detach()
        layer.in_proj_bias.data = torch.cat([part.bias for part in parts]).detach()
        layer.out_proj = linear(tensors, f"{at}.out")  # type: ignore[assignment]
        even = normed(tensors, f"{at}.norm", x)
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        x = even + layer(even[None], x[None], x[None], attn_mask=future, need_weights=False)[0][0]
        x = forwarded(tensors, f"{k}.forward", x)
    return torch.cat([torch.zeros(start, DIM), normed(tensors, "norm", x)])


def tisasrec_by_loops(
    encoder: TiSASRec, tensors: Mapping[str, Tensor], x: Tensor, real: Tensor, times: Tensor
) -> Tensor:
    """One window, pair by pair, as in section 3.3 of the paper."""
    start, width = int(LENGTH - real.sum()), DIM // encoder.heads
    gaps = [abs(float(times[i] - times[j])) for i in range(start, LENGTH) for j in range(start, LENGTH)]
    unit = min((gap for gap in gaps if gap > 0), default=1.0)
    x = x * math.sqrt(DIM)
    for k in range(encoder.layers):
        even = normed(tensors, f"{k}.attention.norm", x)
        query = linear(tensors, f"{k}.attention.query")(even)
        key, value = linear(tensors, f"{k}.attention.memory")(x).split(DIM, dim=-1)
        seen = torch.zeros(LENGTH, DIM)
        for h in range(encoder.heads):
            part = slice(h * width, (h + 1) * width)
            for i in range(start, LENGTH):
                scores, values = [], []
                for j in range(start, i + 1):
                    r = min(encoder.spans, int(abs(float(times[i] - times[j])) / unit))
                    full_key = key[j] + tensors["position.key"][j] + tensors["interval.key"][r]
                    full_value = value[j] + tensors["position.value"][j] + tensors["interval.value"][r]
                    scores.append(query[i][part] @ full_key[part] / math.sqrt(width))
                    values.append(full_value[part])
                seen[i, part] = torch.softmax(torch.stack(scores), 0) @ torch.stack(values)
        x = forwarded(tensors, f"{k}.forward", even + seen)
    return normed(tensors, "norm", x) * real.unsqueeze(-1)


@pytest.mark.parametrize("name", [n for n in ENCODERS if n.startswith("sasrec")])
def test_sasrec_is_torchs_attention_on_the_real_items(name: str) -> None:
    encoder = ENCODERS[name]
    assert isinstance(encoder, SASRec)
    tensors, (x, real, times) = drawn(encoder, 1), windows(2, [5, 3, 1])
    found = encoder.encode(tensors, x, real, times)
    for row in range(3):
        assert_same(found[row], sasrec_by_torch(encoder, tensors, x[row], real[row]).detach())


def test_gru4rec_is_torchs_gru_on_the_real_items() -> None:
    encoder = GRU4Rec(DIM, LENGTH)
    tensors, (x, real, times) = drawn(encoder, 1), windows(2, [5, 3, 1])
    layer = torch.nn.GRU(DIM, DIM, batch_first=True)
    layer.weight_ih_l0.data, layer.bias_ih_l0.data = tensors["input.weight"].t(), tensors["input.bias"]
    layer.weight_hh_l0.data = tensors["state.weight"].t()
    layer.bias_hh_l0.data = torch.cat([torch.zeros(2 * DIM), tensors["state.bias"]])
    found = encoder.encode(tensors, x, real, times)
    for row, n in enumerate([5, 3, 1]):
        assert_same(found[row, LENGTH - n :], layer(x[row : row + 1, LENGTH - n :])[0][0].detach())


@pytest.mark.parametrize("name", [n for n in ENCODERS if n.startswith("tisasrec")])
def test_tisasrec_is_the_papers_pairs(name: str) -> None:
    encoder = ENCODERS[name]
    assert isinstance(encoder, TiSASRec)
    tensors, (x, real, times) = drawn(encoder, 1), windows(2, [5, 3, 1])
    assert {1, 9} <= set(intervals(times, real, 9).flatten().tolist())
    found = encoder.encode(tensors, x, real, times)
    for row in range(3):
        assert_same(found[row], tisasrec_by_loops(encoder, tensors, x[row], real[row], times[row]).detach())


def test_the_recurrences_gradient_is_the_numerical_one() -> None:
    encoder = GRU4Rec(2, LENGTH)
    for lead in ((), (3,)):
        tensors = {
            name: torch.randn(*lead, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(name)))
            for name, shape in encoder.specs().items()
        }
        x = torch.randn(3, LENGTH, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        real = windows(0, [5, 2, 1])[1].double()

        def encode(x: Tensor, *values: Tensor, real: Tensor = real) -> Tensor:
            return encoder.encode(dict(zip(encoder.specs(), values, strict=True)), x, real, real)

        inputs = [v.requires_grad_() for v in (x, *tensors.values())]
        assert torch.autograd.gradcheck(encode, inputs)


def test_intervals_are_counted_in_the_smallest_one_of_the_window() -> None:
    times, real = torch.tensor([7.0, 0.0, 0.0, 30.0, 95.0]), torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0])
    assert intervals(times, real, 3).tolist() == [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 1, 3],
        [0, 0, 0, 1, 3],
        [0, 1, 1, 0, 2],
        [0, 3, 3, 2, 0],
    ]
    assert not intervals(torch.full((5,), 4.0), real, 3).any(), "all at one time"
    assert not intervals(torch.tensor([math.inf, math.nan, 1e9, 4.0, 4.0]), 1.0 * (times * real > 9), 3).any()


# --- what every encoder keeps to ------------------------------------------------------------------------------------


@every
def test_a_shard_is_a_loop_over_its_clients(name: str) -> None:
    encoder = ENCODERS[name]
    tensors, (x, real, times) = drawn(encoder, 3, clients=3), windows(4, [5, 2, 1])
    inputs = {n: v.clone().requires_grad_() for n, v in tensors.items()}
    x.requires_grad_()
    found = encoder.encode(inputs, x, real, times)
    weight = torch.linspace(-1, 1, found.numel()).reshape(found.shape)
    slopes = torch.autograd.grad((found * weight).sum(), [x, *inputs.values()])
    for c in range(3):
        own = {n: v[c].clone().requires_grad_() for n, v in tensors.items()}
        alone = x[c].detach().clone().requires_grad_()
        one = encoder.encode(own, alone, real[c], times[c])
        assert_same(found[c], one)
        expected = torch.autograd.grad((one * weight[c]).sum(), [alone, *own.values()])
        for slope, own_slope in zip(slopes, expected, strict=True):
            assert_same(slope[c], own_slope, size=1.0)


@given(
    name=st.sampled_from(sorted(ENCODERS)),
    lengths=st.lists(st.integers(1, LENGTH), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    junk=st.sampled_from([-1e4, -3.0, 0.5, 1e4]),
)
@settings(max_examples=60, deadline=None)
def test_what_stands_at_padding_changes_nothing(name: str, lengths: list[int], seed: int, junk: float) -> None:
    encoder = ENCODERS[name]
    tensors, (x, real, times) = drawn(encoder, seed), windows(seed, lengths)
    pad = real == 0
    found = encoder.encode(tensors, x, real, times)
    other = encoder.encode(tensors, torch.where(pad.unsqueeze(-1), junk, x), real, torch.where(pad, junk, times))
    assert torch.equal(found, other)
    if name in MASKED:
        assert not found[pad].any(), "padding has no features"
        assert (found[~pad].abs().sum(-1) > 0).all()
    else:
        assert (found.abs().sum(-1) > 0).all(), "as released: padding has features"


@given(name=st.sampled_from(sorted(ENCODERS)), place=st.integers(1, LENGTH - 1), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_nothing_looks_ahead(name: str, place: int, seed: int) -> None:
    encoder = ENCODERS[name]
    tensors, (x, real, _) = drawn(encoder, seed), windows(seed, [LENGTH])
    times = torch.arange(LENGTH).float().unsqueeze(0)  # the smallest interval stays what it is
    later = x.clone()
    later[:, place:] += torch.linspace(-1, 1, DIM).square()  # a constant would be normalised away
    found, other = encoder.encode(tensors, x, real, times), encoder.encode(tensors, later, real, times)
    assert_same(other[:, :place], found[:, :place])
    assert not torch.equal(found[:, place], other[:, place]), "but it does look at its own item"


@every
def test_dropping_happens_at_the_sites_told_and_nowhere_else(name: str) -> None:
    encoder = ENCODERS[name]
    tensors, (x, real, times) = drawn(encoder, 6, clients=2), windows(6, [5, 3])
    seen: dict[str, tuple[int, ...]] = {}

    def note(site: str, values: Tensor) -> Tensor:
        seen[site] = tuple(values.shape)
        return values

    found = encoder.encode(tensors, x, real, times, drop=note)
    assert torch.equal(found, encoder.encode(tensors, x, real, times))
    assert seen == {site: (2, *shape) for site, shape in encoder.sites().items()}
    for chosen in encoder.sites():

        def halve(site: str, values: Tensor, chosen: str = chosen) -> Tensor:
            return values * 0.5 if site == chosen else values

        halved = encoder.encode(tensors, x, real, times, drop=halve)
        assert not torch.equal(found, halved), chosen


def test_first_values_have_the_spread_of_the_originals() -> None:
    made = SASRec().init(0)
    assert made["0.attention.memory.weight"].std().item() == pytest.approx(math.sqrt(2 / 200), rel=0.05)
    assert made["0.forward.inner.weight"].std().item() == pytest.approx(math.sqrt(2 / 100), rel=0.05)
    assert made["0.forward.norm.scale"].eq(1).all()
    assert not made["norm.shift"].any()
    assert sum(v.numel() for v in made.values()) == 16_300  # as released, less padding's row and keys' bias


def test_heads_must_share_the_width() -> None:
    for kind in (SASRec, TiSASRec):
        with pytest.raises(InputError, match="heads 4 does not divide"):
            kind(6, 5, heads=4)
