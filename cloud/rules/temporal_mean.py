"""F3CRec's server takes the mean, with item tables pulled to what they were after the previous block (§4.3.2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Answer, Received, Rule

if TYPE_CHECKING:
    from torch import Tensor


class TemporalMeanSettings(AggregationSettings):
    rule: Literal["temporal-mean"] = "temporal-mean"
    beta: float = Field(0.9, gt=0, lt=1, description="weight of a row's value before, if it did not change (Eq. 9)")
    itemwise: bool = Field(True, description="rows that changed more keep less of before; false: beta for every row")


class TemporalMean(Rule):
    """This rule takes the item-wise temporal mean."""

    name = "temporal-mean"
    settings = TemporalMeanSettings
    citation = "F3CRec Eq. 7-13"
    is_sum = True
    looks_back = True

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        assert isinstance(settings, TemporalMeanSettings)
        after = received.by_mean(settings)
        for name in after:
            if name in received.previous:
                after[name] = temporal_mean(after[name], *received.previous[name], settings.beta, settings.itemwise)
        return Answer(after)


def temporal_mean(aggregated: Tensor, previous: Tensor, known: Tensor, beta: float, itemwise: bool) -> Tensor:
    """Pull a table back to what it was after the previous block (F3CRec §4.3.2), in the dtype of `aggregated`.

    `aggregated`, `previous` [rows, d]; `known` bool [rows]: rows that the previous block had, the others stay.
    `itemwise`: a row that moved far keeps less of before; false: `beta` for every known row (ablation "w/o i.t.m").

    >>> import torch
    >>> now, before = torch.tensor([[3.0], [5.0]]), torch.tensor([[1.0], [0.0]])
    >>> temporal_mean(now, before, torch.tensor([True, False]), 0.5, itemwise=True).tolist()
    [[2.799999952316284], [5.0]]
    """
    import torch

    now, before = aggregated.double(), previous.to(aggregated.device).double()
    shift = (before - now).square().sum(1) / math.sqrt(now.shape[1])  # F3CRec Eq. 8
    gamma = beta / (1 + shift) if itemwise else torch.full_like(shift, beta)  # F3CRec Eq. 9
    mixed = torch.lerp(now, before, gamma.unsqueeze(1))  # F3CRec Eq. 10, 13
    return torch.where(known.to(now.device).unsqueeze(1), mixed.to(aggregated), aggregated)  # F3CRec Eq. 11-12
