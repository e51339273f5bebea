"""These are losses over the positions of a window, from sampled negatives or from the whole catalogue."""

from __future__ import annotations

import torch
from torch import Tensor


def sampled_bce(positive: Tensor, negative: Tensor) -> Tensor:
    """Return each position's binary cross-entropy [..., L]: its target's, and the mean over negatives [..., L, n]."""
    # where torch takes softplus for its argument: a difference of exp(-20), which float32 does not see
    straight = 40.0 if positive.dtype == torch.float64 else 20.0
    each = torch.nn.functional.softplus(negative, threshold=straight).sum(-1) / max(negative.shape[-1], 1)
    return torch.nn.functional.softplus(-positive, threshold=straight) + each


def sampled_softmax(positive: Tensor, negative: Tensor) -> Tensor:
    """Return each position's cross-entropy of its target [..., L] among itself and its negatives [..., L, n]."""
    return torch.logsumexp(torch.cat([positive.unsqueeze(-1), negative], dim=-1), dim=-1) - positive


def full_softmax(positive: Tensor, every: Tensor) -> Tensor:
    """Return each position's cross-entropy of its target [..., L] among all items [..., L, items], itself included."""
    return torch.logsumexp(every, dim=-1) - positive
