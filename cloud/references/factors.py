"""MF is a central reference: an inner product of a user's vector and an item's; CMF takes two domains together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from cloud.references.pooling import Ints, Pooled
from cloud.references.reference import Batches, InBatches, first


class Factors(InBatches):
    """This is MF: BPR-MF (Rendle et al. 2009) with loss "bpr"; with "bce" its scores are logits; "squared": PMF.

    PMF is Salakhutdinov and Mnih's (NIPS 2007), here of what a user had, 1, and of sampled items that it had not, 0.

    `dim` values are a vector, whose first ones have standard deviation `scale`.
    """

    fused = True

    def __init__(self, pooled: Pooled, loss: str, dim: int, scale: float, how: Batches):
        self.dim, self.scale = dim, scale
        super().__init__(pooled, loss, how)

    def start(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        p = self.pooled
        item, user = (
            first(p.seed, p.named(n), (rows, self.dim), self.scale)
            for n, rows in (("item", p.items), ("user", p.users))
        )
        return {"item": item}, {"user": user}

    def scores(self, user: Tensor, items: Tensor) -> tuple[Tensor, list[Tensor]]:
        p = embedding(user, self.own["user"], sparse=True)
        q = embedding(items, self.shared["item"], sparse=True)
        return (p.unsqueeze(1) * q).sum(-1), [p, q]


@dataclass(frozen=True, kw_only=True)
class TwoDomains(Pooled):
    """These are the interactions of two domains, `parts`; a negative is of its interaction's domain."""

    parts: tuple[Pooled, Pooled]

    @classmethod
    def of(cls, source: Pooled, target: Pooled) -> TwoDomains:
        """Join what lies in two domains of the same users and catalogue."""
        user, item, pool = (
            np.concatenate([getattr(part, name) for part in (source, target)]) for name in ("user", "item", "pool")
        )
        return cls(user, item, source.users, source.items, pool, source.seed, parts=(source, target))

    def negatives(self, epoch: int, each: int) -> Ints:
        return np.concatenate([part.negatives(epoch, each) for part in self.parts])


class CMF(Factors):
    """A user's vector is shared by both domains, whose losses weigh `source_weight` and the rest; MF where alike.

    This is collective matrix factorisation (Singh and Gordon, KDD 2008).
    """

    def __init__(self, joint: TwoDomains, loss: str, dim: int, scale: float, how: Batches, source_weight: float):
        super().__init__(joint, loss, dim, scale, how)
        self.of_source = torch.zeros(joint.items, dtype=torch.bool)
        self.of_source[torch.from_numpy(joint.parts[0].pool)] = True
        self.source_weight = source_weight

    def cost(self, scores: Tensor, items: Tensor) -> Tensor:
        """Return the mean over a batch of alpha and 1 - alpha times the losses, twice so that alike they are 1."""
        source = self.of_source[items[:, 0]]
        total = scores.new_zeros(())
        for rows, weight in ((source, self.source_weight), (~source, 1 - self.source_weight)):
            if rows.any():
                total = total + 2 * weight * rows.float().mean() * self.loss(scores[rows])
        return total
