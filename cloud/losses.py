"""These are the terms of hierarchical distillation (TransFR §3.2.2). Padding never counts.

Each term is a mean over the true positions of a text, then over the texts of the batch: the sum over texts of
Eq. 1, scaled so that neither the batch size nor the length of a text changes the learning rate that fits.
"""

from torch import Tensor


def attention_loss(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Return the squared difference of attention matrices (TransFR Eq. 2): a scalar.

    `student`, `teacher`: [texts, heads, L, L] attention probabilities, rows sum to 1; `mask`: [texts, L], 0 =
    padding. The mean is over heads and query positions; over keys it is a sum, since a row is one
    distribution.
    """
    weight = mask.to(student.dtype)
    per_query = (student - teacher).square().mean(1).mul(weight[:, None, :]).sum(-1)  # TransFR Eq. 2
    return _mean_over_tokens(per_query, weight)


def state_loss(projected: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Return the squared difference of projected student states and teacher states (TransFR Eq. 3): a scalar.

    `projected`: the student's states times W, `teacher`: both [texts, L, f']; `mask`: [texts, L], 0 =
    padding.
    """
    weight = mask.to(projected.dtype)
    return _mean_over_tokens((projected - teacher).square().mean(-1), weight)  # TransFR Eq. 3


def _mean_over_tokens(values: Tensor, weight: Tensor) -> Tensor:
    return ((values * weight).sum(-1) / weight.sum(-1)).mean()
