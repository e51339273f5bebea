"""These are the backbones over a window of items: a recurrent unit, and self-attention without and with times.

Owns: the encoders' tensors and their forward passes. Does not own: the item table, the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from edgefr.methods.fcucr.layers import (
    Drop,
    dense,
    dense_shapes,
    dropped,
    feed_forward,
    feed_forward_shapes,
    init_xavier,
    memory,
    memory_shapes,
    merge,
    norm,
    norm_shapes,
    split,
    unseen,
)
from export.program import Tensors
from privacy.errors import InputError


@dataclass(frozen=True)
class GRU4Rec:
    """GRU4Rec is a layer of gated recurrent units (Hidasi et al., 2016); padding leaves the state as it is.

    Gates stand in the order reset, update, candidate, as in torch's GRU, with one bias each: the candidate alone has a
    second bias inside its reset gate, since elsewhere the two would add up.

    >>> encoder = GRU4Rec(dim=4, length=3)
    >>> encoder.specs()
    {'input.weight': (4, 12), 'input.bias': (12,), 'state.weight': (4, 12), 'state.bias': (4,)}
    """

    dim: int = 50
    length: int = 15

    @classmethod
    def of(cls, settings: Any) -> GRU4Rec:
        return cls(settings.dim, settings.length)

    def specs(self) -> dict[str, tuple[int, ...]]:
        d = self.dim
        return dense_shapes("input", d, 3 * d) | {"state.weight": (d, 3 * d), "state.bias": (d,)}

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {"embedding": (self.length, self.dim)}

    def init(self, seed: int) -> dict[str, Tensor]:
        return init_xavier(seed, self.specs(), dict.fromkeys(("input.weight", "state.weight"), 2 * self.dim))

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor, drop: Drop | None = None) -> Tensor:
        given = dense(tensors, "input", dropped(drop, "embedding", x))
        return cast(
            Tensor, _Recurrence.apply(given, tensors["state.weight"], tensors["state.bias"], real.unsqueeze(-1))
        )


class _Recurrence(torch.autograd.Function):
    """This computes states [..., L, d] from what inputs add to the gates [..., L, 3d].

    The backward pass is by hand: the weights' gradient is then one product over all positions, not a sum of L matrices
    per client.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        dim = weight.shape[-2]
        state = torch.zeros_like(given[..., :1, :dim])
        before, gates, inner, candidates = [], [], [], []
        offset = torch.cat([torch.zeros_like(weight[..., 0, : 2 * dim]), bias], dim=-1).unsqueeze(-2)
        for t in range(given.shape[-2]):
            at = given[..., t : t + 1, :]
            added = torch.matmul(state, weight) + offset
            gate = torch.sigmoid(at[..., : 2 * dim] + added[..., : 2 * dim])
            candidate = torch.tanh(torch.addcmul(at[..., 2 * dim :], gate[..., :dim], added[..., 2 * dim :]))
            before.append(state)
            gates.append(gate)
            inner.append(added[..., 2 * dim :])
            candidates.append(candidate)
            kept = 1 - (1 - gate[..., dim:]) * mask[..., t : t + 1, :]
            state = torch.lerp(candidate, state, kept)
        states = torch.cat([*before[1:], state], dim=-2)
        kept_back = (torch.cat(parts, dim=-2) for parts in (before, gates, inner, candidates))
        ctx.save_for_backward(weight, mask, *kept_back)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, mask, before, gates, inner, candidate = ctx.saved_tensors
        dim = weight.shape[-2]
        reset, update = gates[..., :dim], gates[..., dim:]
        moved = (1 - update) * mask  # share of the candidate in the new state
        # what a state's gradient is multiplied with to be that of a gate's input
        of_candidate = moved * (1 - candidate * candidate)
        of_reset = of_candidate * inner * reset * (1 - reset)
        of_update = (before - candidate) * update * moved
        into_state = torch.stack([of_reset, of_update, of_candidate * reset], dim=-2)  # [..., L, 3, d]
        turned, kept = weight.transpose(-1, -2), 1 - moved
        after = torch.zeros_like(before[..., :1, :])
        of_states, of_added = [], []
        for t in reversed(range(before.shape[-2])):
            now = gradients[0][..., t : t + 1, :] + after
            added = (now.unsqueeze(-2) * into_state[..., t : t + 1, :, :]).flatten(-2)
            after = torch.addcmul(torch.matmul(added, turned), now, kept[..., t : t + 1, :])
            of_states.append(now)
            of_added.append(added)
        state, added = torch.cat(of_states[::-1], dim=-2), torch.cat(of_added[::-1], dim=-2)
        given = torch.cat([added[..., : 2 * dim], state * of_candidate], dim=-1)
        of_weight = torch.matmul(before.transpose(-1, -2), added).sum_to_size(weight.shape)
        of_bias = added[..., 2 * dim :].sum(-2)
        while of_bias.dim() >= weight.dim():
            of_bias = of_bias.sum(0)
        return given, of_weight, of_bias, None


@dataclass(frozen=True)
class _Blocks:
    """These are blocks of self-attention and a feed-forward layer over a window of items."""

    dim: int = 50
    length: int = 15
    heads: int = 1
    layers: int = 1

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise InputError(f"model.heads {self.heads} does not divide model.dim {self.dim}; take a divisor of it")

    def _block_specs(self, **more: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all blocks; of attention also `more`, by their own names."""
        d, out = self.dim, dict[str, tuple[int, ...]]()
        for k in range(self.layers):
            out |= norm_shapes(f"{k}.attention.norm", d)
            out |= dense_shapes(f"{k}.attention.query", d, d)
            out |= memory_shapes(f"{k}.attention.memory", d)
            out |= {f"{k}.attention.{name}": shape for name, shape in more.items()}
            out |= feed_forward_shapes(f"{k}.forward", d)
        return out | norm_shapes("norm", d)

    def sites(self) -> dict[str, tuple[int, ...]]:
        wide, every = (self.length, self.dim), (self.length, self.length)
        out: dict[str, tuple[int, ...]] = {"embedding": wide}
        for k in range(self.layers):
            out[f"{k}.attention"] = every if self.heads == 1 else (self.heads, *every)
            out |= {f"{k}.forward.inner": wide, f"{k}.forward.outer": wide}
        return out

    def _query(self, tensors: Tensors, k: int, x: Tensor) -> Tensor:
        return split(dense(tensors, f"{k}.attention.query", x), self.heads)

    def _pair(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values that lie side by side, each by head."""
        key, value = both.split(self.dim, dim=-1)
        return split(key, self.heads), split(value, self.heads)


@dataclass(frozen=True)
class SASRec(_Blocks):
    """SASRec has blocks of attention and a feed-forward layer (Kang & McAuley, 2018).

    Queries are normalised, keys and values are not (as in the code of the authors and of FCUCR).

    `masked=False` is the encoder as FCUCR released it: padding is a zero vector without a position that is attended
    like any item, and has features of its own.

    >>> encoder = SASRec(dim=4, length=3)
    >>> x, real = torch.ones(2, 3, 4), torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    >>> features = encoder.encode(encoder.init(0), x, real, torch.zeros(2, 3))
    >>> features.shape, features.abs().sum(-1) > 0
    (torch.Size([2, 3, 4]), tensor([[False,  True,  True],
            [False, False,  True]]))
    """

    masked: bool = True

    @classmethod
    def of(cls, settings: Any) -> SASRec:
        return cls(settings.dim, settings.length, settings.heads, settings.layers, settings.masked)

    def specs(self) -> dict[str, tuple[int, ...]]:
        out = dense_shapes("out", self.dim, self.dim)
        return {"position": (self.length, self.dim), **self._block_specs(**out)}

    def init(self, seed: int) -> dict[str, Tensor]:
        parts = [f"{k}.attention.{part}.weight" for k in range(self.layers) for part in ("query", "memory")]
        return init_xavier(seed, self.specs(), dict.fromkeys(parts, 4 * self.dim))

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor, drop: Drop | None = None) -> Tensor:
        x = x * math.sqrt(self.dim) + tensors["position"]
        if not self.masked:
            x = x * real.unsqueeze(-1)
        x = dropped(drop, "embedding", x)
        bias = unseen(real, self.heads, self.masked)
        for k in range(self.layers):
            x = feed_forward(tensors, f"{k}.forward", self._attend(tensors, k, x, bias, drop), drop)
        x = norm(tensors, "norm", x)
        return x * real.unsqueeze(-1) if self.masked else x

    def _attend(self, tensors: Tensors, k: int, x: Tensor, bias: Tensor, drop: Drop | None) -> Tensor:
        even = norm(tensors, f"{k}.attention.norm", x)
        query, (key, value) = self._query(tensors, k, even), self._pair(memory(tensors, f"{k}.attention.memory", x))
        scores = torch.matmul(key, query.transpose(-1, -2)) * query.shape[-1] ** -0.5 + bias
        weights = dropped(drop, f"{k}.attention", torch.softmax(scores, dim=-2))
        seen = merge(torch.matmul(weights.transpose(-1, -2), value), self.heads)
        return even + dense(tensors, f"{k}.attention.out", seen)


NEVER = 1e30
"""The smallest interval of a window in which all items have one time."""


def intervals(times: Tensor, real: Tensor, spans: int) -> Tensor:
    """Return the time between every two items in units of the window's smallest positive interval, int64 [..., L, L].

    Values are at most `spans`, and 0 at padding; `times` [..., L] are seconds. TiSASRec §3.1 takes the smallest
    interval of all a user's items, which a window of one session does not know.

    >>> intervals(torch.tensor([0.0, 10.0, 30.0, 1e6]), torch.ones(4), 256)[0]
    tensor([  0,   1,   3, 256])
    """
    pair = real.unsqueeze(-1) * real.unsqueeze(-2) > 0
    apart = torch.where(pair, (times.unsqueeze(-1) - times.unsqueeze(-2)).abs(), torch.zeros_like(times).unsqueeze(-1))
    unit = torch.where(apart > 0, apart, torch.full_like(apart, NEVER)).amin(dim=(-2, -1), keepdim=True)
    return torch.floor((apart / unit).clamp(max=float(spans))).to(torch.int64)


@dataclass(frozen=True)
class TiSASRec(_Blocks):
    """TiSASRec adds position and time distance to keys and values of SASRec's blocks (Li, Wang & McAuley, 2020).

    Scores of intervals are products of queries with the whole interval table; values of intervals are the attention
    that each row gets, times the table. So no [L, L, d] is made.

    >>> encoder = TiSASRec(dim=4, length=3, spans=8)
    >>> x, times = torch.ones(3, 4), torch.tensor([0.0, 0.0, 60.0])
    >>> encoder.encode(encoder.init(0), x, torch.tensor([0.0, 1.0, 1.0]), times).abs().sum(-1) > 0
    tensor([False,  True,  True])
    """

    spans: int = 256

    @classmethod
    def of(cls, settings: Any) -> TiSASRec:
        return cls(settings.dim, settings.length, settings.heads, settings.layers, settings.spans)

    def specs(self) -> dict[str, tuple[int, ...]]:
        out = {f"position.{part}": (self.length, self.dim) for part in ("key", "value")}
        out |= {f"interval.{part}": (self.spans + 1, self.dim) for part in ("key", "value")}
        return out | self._block_specs()

    def sites(self) -> dict[str, tuple[int, ...]]:
        wide = (self.length, self.dim)
        return super().sites() | {"position.key": wide, "position.value": wide}

    def init(self, seed: int) -> dict[str, Tensor]:
        return init_xavier(
            seed, self.specs(), {f"{k}.attention.memory.weight": 2 * self.dim for k in range(self.layers)}
        )

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor, drop: Drop | None = None) -> Tensor:
        x = dropped(drop, "embedding", x * math.sqrt(self.dim))
        bias = unseen(real, self.heads, masked=True)
        apart = intervals(times, real, self.spans)
        places = [dropped(drop, f"position.{part}", tensors[f"position.{part}"]) for part in ("key", "value")]
        place = torch.cat(places, dim=-1)
        for k in range(self.layers):
            x = feed_forward(tensors, f"{k}.forward", self._attend(tensors, k, x, bias, apart, place, drop), drop)
        return norm(tensors, "norm", x) * real.unsqueeze(-1)

    def _attend(
        self, tensors: Tensors, k: int, x: Tensor, bias: Tensor, apart: Tensor, place: Tensor, drop: Drop | None
    ) -> Tensor:
        even = norm(tensors, f"{k}.attention.norm", x)
        query = self._query(tensors, k, even)
        key, value = self._pair(memory(tensors, f"{k}.attention.memory", x) + place)
        spans_key, spans_value = (split(tensors[f"interval.{part}"], self.heads) for part in ("key", "value"))
        every = torch.matmul(spans_key, query.transpose(-1, -2))  # [..., spans + 1, L]
        across = (*every.shape[:-2], self.length, self.length)
        pick = apart if self.heads == 1 else apart.unsqueeze(-3).expand(across)  # of each query [..., L, keys]
        scores = torch.matmul(key, query.transpose(-1, -2)) + every.gather(-2, pick.transpose(-1, -2))
        weights = torch.softmax(scores * query.shape[-1] ** -0.5 + bias, dim=-2)  # [..., keys, queries]
        weights = dropped(drop, f"{k}.attention", weights).transpose(-1, -2)
        of_spans = torch.zeros_like(every.transpose(-1, -2)).scatter_add(-1, pick, weights)
        return even + merge(torch.matmul(weights, value) + torch.matmul(of_spans, spans_value), self.heads)
