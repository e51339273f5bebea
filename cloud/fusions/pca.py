"""This fusion takes the point closest to the query on the line along which prototypes vary most: ours.

The released code centres the set and projects its mean, which is then zero, so its answer is zeros for everyone. Here a
line goes through the mean of the set along its first principal axis, and the answer is the point on it closest to the
query. Axes of equal variance are all taken, and an axis's sign does not matter, so the result does not depend on the
basis that the linear algebra returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cloud.fusion import Fusion, KnowledgeSettings, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor

TIED = 1e-6
"""Relative difference below which two variances count as equal."""


class PCASettings(KnowledgeSettings):
    fusion: Literal["pca"] = "pca"


class PCA(Fusion):
    """This fusion takes the first principal axis."""

    name = "pca"
    settings = PCASettings
    citation = "FCUCR Eq. 6, mended"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        mean = weighted_mean(sets, present, present.double())
        centred = (sets.double() - mean.unsqueeze(1)).masked_fill(~present.unsqueeze(2), 0.0)
        return mean + _along_first_axis(centred, queries.double() - mean)


def _along_first_axis(centred: Tensor, towards: Tensor) -> Tensor:
    """`towards` [C, P] projected on the first principal axis of `centred` [C, k, P], or on all that tie with it."""
    import torch

    values, vectors = torch.linalg.eigh(centred @ centred.mT)  # [C, k], ascending: the set's own k dimensions suffice
    first = values[:, -1:]
    length = centred.square().amax((1, 2)).unsqueeze(1)
    taken = (values >= first * (1 - TIED)) & (first > torch.finfo(torch.float64).eps * length) & (first > 0)
    axes = (vectors.mT @ centred) * torch.where(taken, values, 1.0).rsqrt().unsqueeze(2)  # [C, k, P], of length 1
    share = torch.where(taken, (axes @ towards.unsqueeze(2)).squeeze(2), 0.0)
    return (share.unsqueeze(1) @ torch.where(taken.unsqueeze(2), axes, 0.0)).squeeze(1)
