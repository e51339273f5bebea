"""MiaSRec (Choi et al., SIGIR 2024) represents a session once from the view of each of its items, and keeps a few.

    mean and items, with place and frequency → attention → gate with the items → K = L + 1 intents
                                                             └ importance → entmax → most of them have none

A score is the best cosine of an item with an intent that was kept, and their mean by importance. Shared: item table and
encoder. Private: nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefr.methods.fcucr.layers import (
    MASKED,
    dense,
    dense_shapes,
    memory,
    memory_shapes,
    merge,
    norm,
    norm_shapes,
    split,
)
from edgefr.methods.miasrec.settings import MiaSRecSettings
from edgefr.methods.prefixes import Prefixes, PrefixProgram, mean_of, unit
from export.program import Tensors

BELOW = -2.0
"""Less than any cosine: the score by an intent that was left out."""


class MiaSRec(PrefixProgram):
    """MiaSRec predicts the next item of a session; see `MiaSRecSettings`."""

    name = "miasrec"
    settings: MiaSRecSettings

    def encoder_shapes(self) -> dict[str, tuple[int, ...]]:
        s, d = self.settings, self.settings.dim
        shapes: dict[str, tuple[int, ...]] = {"position": (s.length + 1, d), "frequency": (s.repeats, d)}
        shapes |= norm_shapes("norm", d)
        for k in range(s.layers):
            shapes |= dense_shapes(f"{k}.query", d, d) | memory_shapes(f"{k}.memory", d)
            shapes |= dense_shapes(f"{k}.out", d, d) | norm_shapes(f"{k}.attention", d)
            shapes |= dense_shapes(f"{k}.inner", d, d) | dense_shapes(f"{k}.outer", d, d)
            shapes |= norm_shapes(f"{k}.forward", d)
        return shapes | dense_shapes("gate", 2 * d, d) | {"importance": (d, 1)}

    def intents(self, tensors: Tensors, made: Prefixes, training: bool) -> Tensor:
        plain = torch.cat([mean_of(made.x, made.seen), made.x.index_select(-2, made.at)], dim=-2)
        seen = F.pad(made.seen, (1, 0), value=1.0)
        x = norm(tensors, "norm", plain + self._told(tensors, made))
        for k in range(self.settings.layers):
            x = self._block(tensors, k, x, made, seen)
        gate = torch.sigmoid(dense(tensors, "gate", torch.cat([plain, x], dim=-1)))
        x = gate * plain + (1 - gate) * x
        importance = entmax(laid(made, torch.matmul(x, tensors["importance"])).squeeze(-1), seen)
        return torch.cat([laid(made, unit(x)), importance.unsqueeze(-1)], dim=-1)

    def match(self, intents: Tensor, vectors: Tensor) -> Tensor:
        kept = intents[..., -1].unsqueeze(-2)
        cosines = torch.matmul(vectors, intents[..., :-1].transpose(-1, -2))  # [..., n, K]
        best = torch.where(kept > 0, cosines, BELOW).amax(-1)
        return self.settings.most * best + (1 - self.settings.most) * (cosines * kept).sum(-1)

    def _told(self, tensors: Tensors, made: Prefixes) -> Tensor:
        count = (made.among(made.seen) * made.beside(made.same)).sum(-2)  # [..., P]
        levels = torch.arange(1, self.settings.repeats + 1, device=count.device)
        often = (count.clamp(1, self.settings.repeats).unsqueeze(-1) == levels).to(count.dtype)
        told = tensors["position"].index_select(-2, made.away + 1) + torch.matmul(often, tensors["frequency"])
        of_mean = tensors["position"][..., :1, :] + tensors["frequency"][..., :1, :]
        return torch.cat([of_mean.expand(*told.shape[:-2], made.seen.shape[-2], -1), told], dim=-2)

    def _block(self, tensors: Tensors, k: int, x: Tensor, made: Prefixes, seen: Tensor) -> Tensor:
        heads = self.settings.heads
        query = split(laid(made, dense(tensors, f"{k}.query", x)), heads)
        both = laid(made, memory(tensors, f"{k}.memory", x)).split(self.settings.dim, dim=-1)
        key, value = (split(part, heads) for part in both)
        hidden = (1 - seen).unsqueeze(-1) * MASKED  # [..., keys, 1]
        hidden = hidden if heads == 1 else hidden.unsqueeze(-3)
        scores = torch.matmul(key, query.transpose(-1, -2)) * query.shape[-1] ** -0.5 + hidden
        found = torch.matmul(torch.softmax(scores, dim=-2).transpose(-1, -2), value)
        x = norm(tensors, f"{k}.attention", x + dense(tensors, f"{k}.out", listed(made, merge(found, heads))))
        wide = F.gelu(dense(tensors, f"{k}.inner", x))
        return norm(tensors, f"{k}.forward", x + dense(tensors, f"{k}.outer", wide))


def laid(made: Prefixes, x: Tensor) -> Tensor:
    """Lay tokens out by prefix, its mean first: T means and P pairs [..., T + P, w] -> [..., T, 1 + L, w]."""
    means, pairs = x.split((made.seen.shape[-2], len(made.of)), dim=-2)
    return torch.cat([means.unsqueeze(-2), made.spread(pairs)], dim=-2)


def listed(made: Prefixes, x: Tensor) -> Tensor:
    """Undo `laid`: [..., T, 1 + L, w] -> [..., T + P, w]."""
    place = made.of * x.shape[-2] + made.at + 1
    return torch.cat([x[..., 0, :], x.flatten(-3, -2).index_select(-2, place)], dim=-2)


def entmax(z: Tensor, seen: Tensor) -> Tensor:
    """Return the 1.5-entmax (Peters et al., ACL 2019) of scores [..., K] among those seen: many are exactly 0.

    p = relu(z / 2 - tau)^2, where tau makes the shares sum to 1; it is found without sorting.

    >>> entmax(torch.tensor([0.0, 9.0, 9.0, 1.0]), torch.tensor([1.0, 1.0, 0.0, 1.0]))
    tensor([0., 1., 0., 0.])
    """
    z, fixed = z / 2, z.detach() / 2
    upper = (fixed.unsqueeze(-2) >= fixed.unsqueeze(-1)).to(z.dtype) * seen.unsqueeze(-2)  # [..., j, i]: i no lower
    tau = _threshold(fixed.unsqueeze(-2), upper)
    chosen = (tau <= fixed).to(z.dtype) * seen
    return (z - _threshold(z, chosen).unsqueeze(-1)).square() * chosen


def _threshold(z: Tensor, chosen: Tensor) -> Tensor:
    """Return the tau by which squares of z - tau over those chosen [..., K] add up to 1."""
    count = chosen.sum(-1, keepdim=True).clamp_min(1.0)
    mean = (z * chosen).sum(-1, keepdim=True) / count
    spread = ((z - mean).square() * chosen).sum(-1, keepdim=True)
    return (mean - ((1 - spread) / count).clamp_min(1e-9).sqrt()).squeeze(-1)
