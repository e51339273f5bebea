"""The sequence encoders are made of these: pure functions over the last dimensions, [..., L, d].

A client's tensors may have a leading client dimension ([C, d, e], every client its own) or none (one for all); the
windows may have one as well. The same lines run a shard and are traced for a device.

Attention is kept as [..., keys, queries], normalised over the keys: torch's softmax over short last dimensions takes
four times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefr.methods.losses import init_rows
from export.program import Tensors

Drop = Callable[[str, Tensor], Tensor]
"""drop(site, tensor): the tensor with values dropped (and the rest scaled up). Encoders say which `sites` they have."""

EPSILON = 1e-8
MASKED = -1e9
"""Added to the score of a key that must not be attended."""


def dense_shapes(name: str, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a dense layer: weight [in, out] and bias [out]."""
    return {f"{name}.weight": (wide, out), f"{name}.bias": (out,)}


def norm_shapes(name: str, dim: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a layer normalisation: scale and shift."""
    return {f"{name}.scale": (dim,), f"{name}.shift": (dim,)}


def feed_forward_shapes(name: str, dim: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the two layers at every position, and of the normalisation before them."""
    return {
        **norm_shapes(f"{name}.norm", dim),
        **dense_shapes(f"{name}.inner", dim, dim),
        **dense_shapes(f"{name}.outer", dim, dim),
    }


def init_xavier(
    seed: int, shapes: Mapping[str, tuple[int, ...]], fans: Mapping[str, int] | None = None
) -> dict[str, Tensor]:
    """Draw keyed first values: matrices normal with variance 2 / (fan-in + fan-out), scales 1, others 0.

    `fans` gives fan-in + fan-out of matrices that hold several layers side by side.

    >>> init_xavier(0, norm_shapes("norm", 2))
    {'norm.scale': tensor([1., 1.]), 'norm.shift': tensor([0., 0.])}
    """
    out: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            out[name] = torch.full(shape, float(name.endswith(".scale")))
        else:
            out[name] = init_rows(seed, f"encoder {name}", shape, math.sqrt(2 / (fans or {}).get(name, sum(shape))))
    return out


def dense(tensors: Tensors, name: str, x: Tensor) -> Tensor:
    return torch.matmul(x, tensors[f"{name}.weight"]) + tensors[f"{name}.bias"].unsqueeze(-2)


def memory_shapes(name: str, dim: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the layer of keys and values, [d, 2d], and the values' bias [d].

    A bias of the keys would add the same to all scores of a query; its gradient would be rounding, which Adam
    amplifies.
    """
    return {f"{name}.weight": (dim, 2 * dim), f"{name}.bias": (dim,)}


def memory(tensors: Tensors, name: str, x: Tensor) -> Tensor:
    """Return keys and values of x [..., L, d], side by side: [..., L, 2d]."""
    bias = tensors[f"{name}.bias"]
    return torch.matmul(x, tensors[f"{name}.weight"]) + F.pad(bias, (bias.shape[-1], 0)).unsqueeze(-2)


def norm(tensors: Tensors, name: str, x: Tensor) -> Tensor:
    """Apply layer normalisation over the width."""
    even = F.layer_norm(x, (x.shape[-1],), None, None, EPSILON)
    return even * tensors[f"{name}.scale"].unsqueeze(-2) + tensors[f"{name}.shift"].unsqueeze(-2)


def dropped(drop: Drop | None, site: str, x: Tensor) -> Tensor:
    return x if drop is None else drop(site, x)


def feed_forward(tensors: Tensors, name: str, x: Tensor, drop: Drop | None) -> Tensor:
    """Apply SASRec's Eq. 7 around a residual connection: y + W2 relu(W1 y), y = the normalised x."""
    x = norm(tensors, f"{name}.norm", x)
    inner = dropped(drop, f"{name}.inner", torch.relu(dense(tensors, f"{name}.inner", x)))
    return x + dropped(drop, f"{name}.outer", dense(tensors, f"{name}.outer", inner))


def split(x: Tensor, heads: int) -> Tensor:
    """Split by head: [..., n, d] -> [..., heads, n, d / heads]; as it is for one head."""
    return x if heads == 1 else x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(-2, -3)


def merge(x: Tensor, heads: int) -> Tensor:
    return x if heads == 1 else x.transpose(-2, -3).flatten(-2)


def unseen(real: Tensor, heads: int, masked: bool) -> Tensor:
    """Return what is added to attention scores [..., (1,) keys, queries]: 0 where query i may see key j, else -1e9.

    A query sees itself and what came before, not padding (`masked`). A padded query sees all evenly, so its position
    must be set to zero afterwards.

    >>> unseen(torch.tensor([0.0, 1.0, 1.0]), 1, True) == 0
    tensor([[False, False, False],
            [False,  True,  True],
            [False, False,  True]])
    """
    length = real.shape[-1]
    seen = torch.ones(length, length, dtype=real.dtype, device=real.device).triu()
    if masked:
        seen = seen * real.unsqueeze(-1)
    bias = (1.0 - seen) * MASKED
    return bias if heads == 1 else bias.unsqueeze(-3)


class SequenceEncoder(Protocol):
    """A backbone has pure functions over the last dimensions of one client's tensors."""

    def specs(self) -> dict[str, tuple[int, ...]]: ...

    def init(self, seed: int) -> dict[str, Tensor]: ...

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor) -> Tensor: ...


@runtime_checkable
class Dropping(Protocol):
    """A backbone with dropout says at which `sites`, and one client's shape there; `encode` takes a `Drop` too."""

    def sites(self) -> dict[str, tuple[int, ...]]: ...

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor, drop: Drop | None = None) -> Tensor: ...
