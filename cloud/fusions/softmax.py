"""This fusion takes the mean weighted by softmax(cosine / temperature); at the released 1 it is nearly a mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from cloud.fusion import Fusion, KnowledgeSettings, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor


class SoftmaxSettings(KnowledgeSettings):
    fusion: Literal["softmax"] = "softmax"
    temperature: float = Field(1.0, gt=0, description="the lower, the more the nearest counts")


class Softmax(Fusion):
    """This fusion takes the mean that near prototypes weigh more in."""

    name = "softmax"
    settings = SoftmaxSettings
    citation = "FCUCR Eq. 6"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        assert isinstance(settings, SoftmaxSettings)
        logits = (cosines.double() / settings.temperature).masked_fill(~present, -np.inf)
        highest = logits.amax(1, keepdim=True).clamp_min(float(np.finfo(np.float64).min))
        return weighted_mean(sets, present, (logits - highest).exp())
