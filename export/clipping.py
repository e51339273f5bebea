"""A step's gradients are cut to a joint length, in every layout and in the graph of a device alike.

This is a step's stability, as `torch.nn.utils.clip_grad_norm_` has it, and promises nothing of what leaves a device:
that is `privacy.clip`.
"""

from __future__ import annotations

from torch import Tensor

SMALLEST = 1e-6
"""Added to a length before it divides, as torch does."""


def shrink(square: Tensor, most: float) -> Tensor:
    """Return what gradients of this squared joint length [...] are multiplied by: at most 1.

    >>> import torch
    >>> shrink(torch.tensor([0.25, 100.0]), 1.0).round(decimals=4)
    tensor([1.0000, 0.1000])
    """
    return (most / (square.sqrt() + SMALLEST)).clamp(max=1.0)
