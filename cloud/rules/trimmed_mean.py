"""This rule takes the coordinate-wise trimmed mean, against hostile clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Robust

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.uploads import Uploads

AMONG = (
    "of a table's row: over the clients that changed it, times their share of the cohort; or over the whole cohort, "
    "the others as 0: a hostile minority moves no rare row, and nobody does"
)


class TrimmedMeanSettings(AggregationSettings):
    rule: Literal["trimmed-mean"] = "trimmed-mean"
    trim: float = Field(
        0.25,
        ge=0,
        lt=0.5,
        description="share of values cut at each end, rounded up; at least the share of hostile clients",
    )
    among: Literal["changed", "cohort"] = Field("changed", description=AMONG)


class TrimmedMean(Robust):
    """This rule takes the mean of what is left at every coordinate."""

    name = "trimmed-mean"
    settings = TrimmedMeanSettings
    citation = "Yin et al. 2018"

    def combine(
        self, settings: AggregationSettings, uploads: Uploads, shared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        from cloud.trimming import trimmed

        assert isinstance(settings, TrimmedMeanSettings)
        share = settings.trim
        return trimmed(uploads, shared, lambda values: cut_of(values, share), settings.among)


def cut_of(values: Tensor, share: float) -> Tensor:
    """Return how many of so many values are cut at each end; one or two are always left."""
    import torch

    most = (values - 1).clamp_min(0) // 2
    return torch.minimum((values * share - 1e-9).ceil().long(), most)
