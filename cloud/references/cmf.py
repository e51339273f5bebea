"""CMF is a central reference: two matrices of the same users, factorised together (Singh and Gordon, KDD 2008)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cloud.references.factors import Factors
from cloud.references.pooling import Ints, Pooled
from cloud.references.reference import Batches


@dataclass(frozen=True, kw_only=True)
class Joint(Pooled):
    """These are the interactions of two domains, `parts`; a negative is of its interaction's domain."""

    parts: tuple[Pooled, Pooled]

    @classmethod
    def of(cls, source: Pooled, target: Pooled) -> Joint:
        """Join what lies in two domains of the same users and catalogue."""
        user, item, pool = (
            np.concatenate([getattr(part, name) for part in (source, target)]) for name in ("user", "item", "pool")
        )
        return cls(user, item, source.users, source.items, pool, source.seed, parts=(source, target))

    def negatives(self, epoch: int, each: int) -> Ints:
        return np.concatenate([part.negatives(epoch, each) for part in self.parts])


class CMF(Factors):
    """A user's vector is shared by both domains, whose losses weigh `source_weight` and the rest; MF where alike."""

    def __init__(self, joint: Joint, loss: str, dim: int, scale: float, how: Batches, source_weight: float):
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
