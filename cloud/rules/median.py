"""This rule takes the coordinate-wise median, against hostile clients: the mean trimmed as far as it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Robust
from cloud.rules.trimmed_mean import AMONG, Among, trimmed

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.uploads import Uploads


class MedianSettings(AggregationSettings):
    rule: Literal["median"] = "median"
    among: Among = Field("changed", description=AMONG)


class Median(Robust):
    """This rule takes the median at every coordinate.

    >>> import torch
    >>> from cloud.uploads import Uploads
    >>> rows = (torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), torch.tensor([[1.0], [2.0], [900.0]]))
    >>> uploads, shared = Uploads({}, {"item": rows}, clients=3), {"item": torch.zeros(2, 1)}
    >>> Median().combine(MedianSettings(), uploads, shared)["item"].tolist()
    [[2.0], [0.0]]
    """

    name = "median"
    settings = MedianSettings
    citation = "Yin et al. 2018"

    def combine(
        self, settings: AggregationSettings, uploads: Uploads, shared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        assert isinstance(settings, MedianSettings)
        return trimmed(uploads, shared, lambda values: (values - 1).clamp_min(0) // 2, settings.among)
