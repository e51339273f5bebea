"""A server optimiser takes the cohort's mean update for a negative gradient (FedOpt, Reddi et al. 2021, Algorithm 1).

Any of them looks at the opened sum alone, so it costs no privacy. An optimiser is one entry of `OPTIMISERS`, in a file
of its own under `cloud/optimisers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Stepping(ABC):
    """This is an optimiser while a run goes on. `kept`: what it keeps of each tensor, by names: tensors and counts."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    @abstractmethod
    def step(self, name: str, mean: Tensor) -> Tensor:
        """Return what tensor `name` moves by for a mean update, float64 of its shape."""

    def state(self) -> dict[str, dict[str, Any]]:
        """Return what a checkpoint needs."""
        return {name: dict(parts) for name, parts in self.kept.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]], device: torch.device) -> None:
        """Go on from `state()` (arrays in place of tensors)."""
        import torch

        for name, parts in state.items():
            self.kept[name] = {
                part: torch.from_numpy(np.array(value)).to(device) if isinstance(value, np.ndarray) else int(value)
                for part, value in parts.items()
            }
