"""This fusion weighs prototypes by attention: softmax(query · prototype / sqrt(width)), as the article suggests.

Its code says that "attention-weighted pooling" can replace the plain mean, and does not write it down. So it is scaled
dot-product attention (Vaswani et al., 2017) without layers of its own. Unlike `softmax` it depends on how long
prototypes are, and not on their angle alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from cloud.fusion import Fusion, KnowledgeSettings, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor


class AttentionSettings(KnowledgeSettings):
    fusion: Literal["attention"] = "attention"


class Attention(Fusion):
    """This fusion takes the mean that prototypes along the query weigh more in."""

    name = "attention"
    settings = AttentionSettings
    citation = "FCUCR Eq. 6, as its article's code suggests"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        logits = (sets.double() @ queries.double().unsqueeze(2)).squeeze(2) / queries.shape[1] ** 0.5
        logits = logits.masked_fill(~present, -np.inf)
        highest = logits.amax(1, keepdim=True).clamp_min(float(np.finfo(np.float64).min))
        return weighted_mean(sets, present, (logits - highest).exp())
