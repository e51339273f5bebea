"""FedCAR whose candidates lean more on what was had later, by a slope that is learned (ours, as a plug-in).

    edgefr simulate --plugin experiments/fedcar/recency.py --experiment experiments/fedcar/recipes/ml-100k/fedcar.yaml \
        --set method=fedcar-recency --data-dir DATA --no-bundles
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

import edgefr
from edgefr.experiment.method import METHODS, Method
from edgefr.methods.fedcar.encoder import ContextEncoder
from edgefr.methods.fedcar.parts import Shown
from edgefr.methods.fedcar.program import FedCAR
from edgefr.methods.fedcar.settings import FedCARSettings
from export.batches import Batch
from export.given import Given
from export.program import LocalProgram, Phase, Tensors


class Recent(ContextEncoder):
    """An encoder whose attention (Eq. 13) has one more term, a slope times how many items came after."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor, by name."""
        return super().shapes | {"slope": (1,)}

    def attended(self, tensors: Mapping[str, Tensor], shown: Shown) -> tuple[Tensor, Tensor]:
        """Return the shares as of logits with the slope's term, and the values."""
        share, values = super().attended(tensors, shown)
        after = torch.arange(self.length - 1, -1, -1, dtype=share.dtype, device=share.device).unsqueeze(-1)
        share = share * torch.exp(-tensors["slope"].unsqueeze(-1).unsqueeze(-1) * after)
        return share / share.sum(-2, keepdim=True).clamp_min(1e-9), values


class RecentFedCAR(FedCAR):
    """FedCAR with that encoder, whose gradients are autograd's: the compiled ones know no slope."""

    name = "fedcar-recency"
    ContextEncoder = Recent

    def gradients(self, tensors: Tensors, batch: Batch, phase: Phase) -> dict[str, Tensor]:
        return LocalProgram.gradients(self, tensors, batch, phase)


def build(settings: FedCARSettings, given: Given) -> RecentFedCAR:
    """Build the program by FedCAR's settings."""
    return RecentFedCAR(settings, given.items, given.local_epochs)


plain = METHODS["fedcar"]
edgefr.register(
    Method(
        name="fedcar-recency",
        paper="ours",
        settings=FedCARSettings,
        build=build,
        messages=plain.messages,
        check=plain.check,
        ordered=True,
        defaults=plain.defaults,
    )
)
