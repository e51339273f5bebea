"""Several prototypes become one (FCUCR Eq. 6).

Owns: the three fusions. Does not own: which prototypes are fused (`cloud.prototypes`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from cloud.settings import KnowledgeSettings

TIED = 1e-6
"""Relative difference below which two variances count as equal."""


def fused(sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor, settings: KnowledgeSettings) -> Tensor:
    """One vector per client from the prototypes that were found for it: float64 [C, P].

    `sets` [C, k, P]; `cosines` [C, k] to the client's query; `present` bool [C, k] says which of them there are;
    `queries` [C, P]. Without any prototype: zeros.

    - mean: every prototype counts the same.
    - softmax: weights softmax(cosine / temperature). At the released temperature of 1 the weights of cosines
      within .1 of each other differ by a tenth at most: nearly a mean.
    - pca: the released code centres the set and projects its mean, which is then zero, so its answer is zeros for
      everyone. Here, and this is ours: a line through the mean of the set along its first principal axis, and on that
      line the point closest to the query. It keeps what the set has in common and, of what its members differ in, the
      one direction that tells most, at the place where this client stands. An axis has no sign in this, and axes of
      equal variance are all taken, so no choice of a basis is left to the linear algebra.

    >>> sets, present = torch.tensor([[[0.0, 2.0], [4.0, 2.0], [2.0, 2.0]]]), torch.tensor([[True, True, True]])
    >>> cosines, query = torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[3.0, 7.0]])
    >>> fused(sets, cosines, present, query, KnowledgeSettings(fusion="mean")).tolist()
    [[2.0, 2.0]]
    >>> fused(sets, cosines, present, query, KnowledgeSettings(fusion="pca")).round(decimals=9).tolist()
    [[3.0, 2.0]]
    """
    there = present.double()
    if settings.fusion == "softmax":
        logits = (cosines.double() / settings.temperature).masked_fill(~present, -torch.inf)
        highest = logits.amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).min)
        there = (logits - highest).exp()
    weights = there / there.sum(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    sets = sets.double().masked_fill(~present.unsqueeze(2), 0.0)
    mean = (weights.unsqueeze(1) @ sets).squeeze(1)
    if settings.fusion != "pca":
        return mean
    centred = (sets - mean.unsqueeze(1)).masked_fill(~present.unsqueeze(2), 0.0)
    return mean + _along_first_axis(centred, queries.double() - mean)


def _along_first_axis(centred: Tensor, towards: Tensor) -> Tensor:
    """`towards` [C, P] projected on the first principal axis of `centred` [C, k, P], or on all that tie with it."""
    values, vectors = torch.linalg.eigh(centred @ centred.mT)  # [C, k], ascending: the set's own k dimensions suffice
    first = values[:, -1:]
    length = centred.square().amax((1, 2)).unsqueeze(1)
    taken = (values >= first * (1 - TIED)) & (first > torch.finfo(torch.float64).eps * length) & (first > 0)
    axes = (vectors.mT @ centred) * torch.where(taken, values, 1.0).rsqrt().unsqueeze(2)  # [C, k, P], of length 1
    share = torch.where(taken, (axes @ towards.unsqueeze(2)).squeeze(2), 0.0)
    return (share.unsqueeze(1) @ torch.where(taken.unsqueeze(2), axes, 0.0)).squeeze(1)
