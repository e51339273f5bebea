"""NeuMF is a central reference: GMF and an MLP, fused (He et al., Neural Collaborative Filtering, WWW 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding

from cloud.references.pooling import Pooled
from cloud.references.reference import Batches, InBatches, first


def layers(tower: Sequence[int], dim: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the dense tensors: the tower's layers, and the last one over both parts.

    >>> list(layers([8, 4], 3))
    ['tower.0.weight', 'tower.0.bias', 'fused.weight']
    """
    out: dict[str, tuple[int, ...]] = {}
    for k, (wide, narrow) in enumerate(pairwise(tower)):
        out |= {f"tower.{k}.weight": (wide, narrow), f"tower.{k}.bias": (narrow,)}
    return out | {"fused.weight": (dim + tower[-1],)}


def forward(tensors: Mapping[str, Tensor], user: Tensor, item: Tensor, dim: int) -> Tensor:
    """Score items [..., n, w] for a user [..., 1 or n, w]; the first `dim` values of either are GMF's: [..., n]."""
    gmf = user[..., :dim] * item[..., :dim]  # NCF Eq. 12, GMF
    own, other = user[..., dim:], item[..., dim:]
    shape = torch.broadcast_shapes(own.shape, other.shape)
    x = torch.cat([own.expand(shape), other.expand(shape)], dim=-1)
    for k in range(sum(name.endswith(".bias") for name in tensors)):  # NCF Eq. 12, MLP
        x = torch.relu(x @ tensors[f"tower.{k}.weight"] + tensors[f"tower.{k}.bias"])
    return torch.cat([gmf.expand(*shape[:-1], dim), x], dim=-1) @ tensors["fused.weight"]  # NCF Eq. 12, the fusion


class NeuMF(InBatches):
    """This trains GMF over `dim` values and an MLP over `tower` from scratch; `scale`: deviation of first vectors."""

    def __init__(self, pooled: Pooled, dim: int, tower: Sequence[int], scale: float, how: Batches):
        self.dim, self.tower, self.scale = dim, tuple(tower), scale
        super().__init__(pooled, "bce", how)

    def start(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        p, width = self.pooled, self.dim + self.tower[0] // 2
        shared = {"item": first(p.seed, "item", (p.items, width), self.scale)}
        for name, shape in layers(self.tower, self.dim).items():
            spread = (2.0 / shape[0]) ** 0.5  # He-normal, as ReLU asks
            shared[name] = torch.zeros(shape) if name.endswith("bias") else first(p.seed, name, shape, spread)
        return shared, {"user": first(p.seed, "user", (p.users, width), self.scale)}

    def scores(self, user: Tensor, items: Tensor) -> tuple[Tensor, list[Tensor]]:
        p = embedding(user, self.own["user"], sparse=True)
        q = embedding(items, self.shared["item"], sparse=True)
        return forward(self.shared, p.unsqueeze(1), q, self.dim), [p, q]
