"""Matrix factorisation is a central reference: an inner product of a user's vector and an item's."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import embedding

from cloud.references.pooling import Pooled
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
