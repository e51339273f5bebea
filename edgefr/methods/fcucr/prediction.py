"""A client's own prediction module p_ψ is an MLP with Dice between its layers.

It reads features beside the server's reply.
"""

from __future__ import annotations

from math import prod, sqrt

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr import purposes
from export.program import Tensors
from privacy import keyed

EPSILON = 1e-5


def prediction_shapes(dim: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes: 2 dim -> hidden -> dim, and Dice's slope per hidden value."""
    return {
        "prediction.0.weight": (2 * dim, hidden),
        "prediction.0.bias": (hidden,),
        "prediction.slope": (hidden,),
        "prediction.1.weight": (hidden, dim),
        "prediction.1.bias": (dim,),
    }


def init_prediction(seed: int, dim: int, hidden: int, clients: npt.NDArray[np.int64]) -> dict[str, Tensor]:
    """Draw the first values [C, ...]: weights and biases uniform in ±1/sqrt(fan-in), keyed by client; slopes 0."""
    out: dict[str, Tensor] = {}
    for name, shape in prediction_shapes(dim, hidden).items():
        bound = 1 / sqrt(2 * dim if ".0." in name else hidden)
        if name.endswith("slope"):
            out[name] = torch.zeros(len(clients), *shape)
            continue
        keys = keyed.fold(keyed.key(seed, purposes.init(name)), clients)
        draws = keyed.uniform(keys[:, None], np.arange(prod(shape)))
        out[name] = torch.from_numpy(((2 * draws - 1) * bound).astype(np.float32)).view(len(clients), *shape)
    return out


def prediction(tensors: Tensors, x: Tensor, real: Tensor) -> Tensor:
    """Apply the MLP at every position: x [..., L, 2d] -> [..., L, d]; `real` [..., L] says which positions count."""
    wide = torch.matmul(x, tensors["prediction.0.weight"]) + tensors["prediction.0.bias"].unsqueeze(-2)
    bent = dice(wide, tensors["prediction.slope"].unsqueeze(-2), real)
    return torch.matmul(bent, tensors["prediction.1.weight"]) + tensors["prediction.1.bias"].unsqueeze(-2)


def dice(x: Tensor, slope: Tensor, real: Tensor) -> Tensor:
    """Return Dice (Zhou et al. 2018, Eq. 4): p x + (1 - p) slope x.

    p = sigmoid of x standardised over the real positions.

    The released code standardises by a BatchNorm whose running averages serve evaluation; here a window's own
    positions always do, so what a device computes depends on nothing but its window.
    """
    weight = (real / real.sum(-1, keepdim=True).clamp_min(1.0)).unsqueeze(-1)
    mean = (x * weight).sum(-2, keepdim=True)
    variance = ((x - mean).square() * weight).sum(-2, keepdim=True)
    gate = torch.sigmoid((x - mean) * torch.rsqrt(variance + EPSILON))
    return gate * x + (1 - gate) * slope * x
