"""SASRec (Kang & McAuley, 2018) is self-attention over a window of items.

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


@dataclass(frozen=True)
class SASRec:
    """SASRec has blocks of attention and a feed-forward layer.

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

    dim: int = 50
    length: int = 15
    heads: int = 1
    layers: int = 1
    masked: bool = True

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)

    def specs(self) -> dict[str, tuple[int, ...]]:
        d = self.dim
        out: dict[str, tuple[int, ...]] = {"position": (self.length, d)}
        for k in range(self.layers):
            out |= norm_shapes(f"{k}.attention.norm", d)
            out |= dense_shapes(f"{k}.attention.query", d, d)
            out |= memory_shapes(f"{k}.attention.memory", d)
            out |= dense_shapes(f"{k}.attention.out", d, d)
            out |= feed_forward_shapes(f"{k}.forward", d)
        return out | norm_shapes("norm", d)

    def sites(self) -> dict[str, tuple[int, ...]]:
        out: dict[str, tuple[int, ...]] = {"embedding": (self.length, self.dim)}
        for k in range(self.layers):
            out[f"{k}.attention"] = weights_shape(self.length, self.heads)
            out |= feed_forward_sites(f"{k}.forward", self.length, self.dim)
        return out

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
        query = split(dense(tensors, f"{k}.attention.query", even), self.heads)
        both = memory(tensors, f"{k}.attention.memory", x)
        key, value = (split(part, self.heads) for part in both.split(self.dim, dim=-1))
        scores = torch.matmul(key, query.transpose(-1, -2)) * query.shape[-1] ** -0.5 + bias
        weights = dropped(drop, f"{k}.attention", torch.softmax(scores, dim=-2))
        seen = merge(torch.matmul(weights.transpose(-1, -2), value), self.heads)
        return even + dense(tensors, f"{k}.attention.out", seen)
