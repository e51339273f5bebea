"""The plain mean: every prototype counts the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cloud.fusion import Fusion, KnowledgeSettings, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor


class MeanSettings(KnowledgeSettings):
    fusion: Literal["mean"] = "mean"


class Mean(Fusion):
    name = "mean"
    settings = MeanSettings
    citation = "FCUCR Eq. 6"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        return weighted_mean(sets, present, present.double())
