"""A client's own prediction module p_ψ is an MLP with Dice between layers, on features and the server's reply."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fcucr.layers import dense, dense_shapes, norm_shapes
from export.program import Tensors
from privacy import keyed

EPSILON, RELEASED_EPSILON = 1e-5, 1e-9
"""Added to variances: of real positions, and of all of them, as released."""

MOMENTUM = 0.1
"""The share of a step's mean and variance in running averages."""

AVERAGES = ("prediction.mean", "prediction.variance")
"""Private tensors that no gradient trains."""


@dataclass(frozen=True)
class Prediction:
    """These are the MLP's widths and what Dice standardises by, see `FCUCRSettings`.

    `scaled`: also by a trained scale and shift; `padding`: over padding, too; `running`: scores use averages over
    steps; `xavier`: first weights.
    """

    dim: int
    hidden: int
    scaled: bool = False
    padding: bool = False
    running: bool = False
    xavier: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of what is trained: 2 dim -> hidden -> dim, and Dice's values per hidden one."""
        out: dict[str, tuple[int, ...]] = dense_shapes("prediction.0", 2 * self.dim, self.hidden)
        out["prediction.slope"] = (self.hidden,)
        if self.scaled:
            out |= norm_shapes("prediction", self.hidden)
        return out | dense_shapes("prediction.1", self.hidden, self.dim)

    def averages(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(AVERAGES, (self.hidden,)) if self.running else {}

    def init(self, seed: int, clients: npt.NDArray[np.int64]) -> dict[str, Tensor]:
        """Draw first values [C, ...], keyed by client: weights uniform in ±1/sqrt(fan-in), or normal with `xavier`."""
        out: dict[str, Tensor] = {}
        for name, shape in {**self.shapes(), **self.averages()}.items():
            if name.split(".")[1] not in ("0", "1"):
                out[name] = torch.full((len(clients), *shape), float(name.endswith(("scale", "variance"))))
                continue
            keys = keyed.fold(keyed.key(seed, purposes.init(name)), clients)[:, None]
            places = np.arange(prod(shape))
            if self.xavier and len(shape) == 2:
                draws = keyed.normal(keys, places) * sqrt(2 / sum(shape))
            else:
                draws = (2 * keyed.uniform(keys, places) - 1) * (
                    1 / sqrt(2 * self.dim if ".0." in name else self.hidden)
                )
            out[name] = torch.from_numpy(draws.astype(np.float32)).view(len(clients), *shape)
        return out

    def apply(self, tensors: Tensors, x: Tensor, real: Tensor, *, scoring: bool = False) -> Tensor:
        """Apply the MLP at every position: x [..., L, 2d] -> [..., L, d]; `real` [..., L] is 0 at padding."""
        if not scoring or not self.running:
            return self.learned(tensors, x, real)[0]
        mean, variance = (tensors[name].unsqueeze(-2) for name in AVERAGES)
        moments = mean, variance.abs()  # which it is; a graph is tried on any numbers
        return self._out(tensors, dense(tensors, "prediction.0", x), moments)

    def learned(self, tensors: Tensors, x: Tensor, real: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what the MLP makes of x, and its running averages after a step on it."""
        wide = dense(tensors, "prediction.0", x)
        moments = self.moments(wide, real)
        return self._out(tensors, wide, moments), self._averaged(tensors, moments, real)

    def _out(self, tensors: Tensors, wide: Tensor, moments: tuple[Tensor, Tensor]) -> Tensor:
        """Return the outputs of hidden values that have these moments."""
        mean, variance = moments
        even = (wide - mean) * torch.rsqrt(variance + (RELEASED_EPSILON if self.padding else EPSILON))
        if self.scaled:
            even = even * tensors["prediction.scale"].unsqueeze(-2) + tensors["prediction.shift"].unsqueeze(-2)
        return dense(tensors, "prediction.1", dice(wide, even, tensors["prediction.slope"].unsqueeze(-2)))

    def moments(self, wide: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [..., 1, hidden] of a window's hidden values [..., L, hidden]."""
        real = torch.ones_like(real) if self.padding else real
        weight = (real / real.sum(-1, keepdim=True).clamp_min(1.0)).unsqueeze(-1)
        mean = (wide * weight).sum(-2, keepdim=True)
        return mean, ((wide - mean).square() * weight).sum(-2, keepdim=True)

    def _averaged(self, tensors: Tensors, moments: tuple[Tensor, Tensor], real: Tensor) -> dict[str, Tensor]:
        """Return the running averages after a step with these moments; of variances without bias, as BatchNorm's."""
        if not self.running:
            return {}
        mean, variance = (part.detach() for part in moments)
        count = torch.ones_like(real).sum(-1, keepdim=True) if self.padding else real.sum(-1, keepdim=True)
        now = mean.squeeze(-2), variance.squeeze(-2) * (count / (count - 1).clamp_min(1.0))
        return {name: torch.lerp(tensors[name], value, MOMENTUM) for name, value in zip(AVERAGES, now, strict=True)}


def dice(x: Tensor, even: Tensor, slope: Tensor) -> Tensor:
    """Return Dice (Zhou et al. 2018, Eq. 4): p x + (1 - p) slope x, p = sigmoid of x as standardised, `even`."""
    gate = torch.sigmoid(even)
    return gate * x + (1 - gate) * slope * x
