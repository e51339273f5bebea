"""TiSASRec (Li, Wang & McAuley, 2020) is self-attention that knows the time between any two items of a window.

Owns: the encoder's tensors and its forward pass. Does not own: the item table, the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefr.methods.fcucr.layers import (
    Drop,
    check_heads,
    dense,
    dense_shapes,
    dropped,
    feed_forward,
    feed_forward_shapes,
    feed_forward_sites,
    init_xavier,
    memory,
    memory_shapes,
    merge,
    norm,
    norm_shapes,
    split,
    unseen,
    weights_shape,
)
from export.program import Tensors

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
class TiSASRec:
    """These are SASRec's blocks with position and time distance added to an item's keys and values.

    Scores of intervals are products of queries with the whole interval table; values of intervals are the attention
    that each row gets, times the table. So no [L, L, d] is made.

    >>> encoder = TiSASRec(dim=4, length=3, spans=8)
    >>> x, times = torch.ones(3, 4), torch.tensor([0.0, 0.0, 60.0])
    >>> encoder.encode(encoder.init(0), x, torch.tensor([0.0, 1.0, 1.0]), times).abs().sum(-1) > 0
    tensor([False,  True,  True])
    """

    dim: int = 50
    length: int = 15
    heads: int = 1
    layers: int = 1
    spans: int = 256

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)

    def specs(self) -> dict[str, tuple[int, ...]]:
        d = self.dim
        out: dict[str, tuple[int, ...]] = {f"position.{part}": (self.length, d) for part in ("key", "value")}
        out |= {f"interval.{part}": (self.spans + 1, d) for part in ("key", "value")}
        for k in range(self.layers):
            out |= norm_shapes(f"{k}.attention.norm", d)
            out |= dense_shapes(f"{k}.attention.query", d, d)
            out |= memory_shapes(f"{k}.attention.memory", d)
            out |= feed_forward_shapes(f"{k}.forward", d)
        return out | norm_shapes("norm", d)

    def sites(self) -> dict[str, tuple[int, ...]]:
        wide = (self.length, self.dim)
        out: dict[str, tuple[int, ...]] = {"embedding": wide, "position.key": wide, "position.value": wide}
        for k in range(self.layers):
            out[f"{k}.attention"] = weights_shape(self.length, self.heads)
            out |= feed_forward_sites(f"{k}.forward", self.length, self.dim)
        return out

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
        query = split(dense(tensors, f"{k}.attention.query", even), self.heads)
        both = memory(tensors, f"{k}.attention.memory", x) + place
        key, value = (split(part, self.heads) for part in both.split(self.dim, dim=-1))
        spans_key, spans_value = (split(tensors[f"interval.{part}"], self.heads) for part in ("key", "value"))
        every = torch.matmul(spans_key, query.transpose(-1, -2))  # [..., spans + 1, L]
        across = (*every.shape[:-2], self.length, self.length)
        pick = apart if self.heads == 1 else apart.unsqueeze(-3).expand(across)  # of each query [..., L, keys]
        scores = torch.matmul(key, query.transpose(-1, -2)) + every.gather(-2, pick.transpose(-1, -2))
        weights = torch.softmax(scores * query.shape[-1] ** -0.5 + bias, dim=-2)  # [..., keys, queries]
        weights = dropped(drop, f"{k}.attention", weights).transpose(-1, -2)
        of_spans = torch.zeros_like(every.transpose(-1, -2)).scatter_add(-1, pick, weights)
        return even + merge(torch.matmul(weights, value) + torch.matmul(of_spans, spans_value), self.heads)
