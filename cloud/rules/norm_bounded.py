"""This rule takes the mean of updates no longer than a bound, against hostile clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Answer, Received, Robust

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.uploads import Uploads


class NormBoundedSettings(AggregationSettings):
    rule: Literal["norm-bounded"] = "norm-bounded"
    norm_bound: float | None = Field(
        None, gt=0, description="largest L2 norm of an update; empty: the median norm of the cohort"
    )


class NormBounded(Robust):
    """The mean of shortened updates."""

    name = "norm-bounded"
    settings = NormBoundedSettings
    citation = "Sun et al. 2019, norm thresholding"

    def bound(self, settings: AggregationSettings) -> float | None:
        assert isinstance(settings, NormBoundedSettings)
        return settings.norm_bound

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        """Answer by the mean where the bound is fixed: each update was clipped to it before it went into the sum."""
        if received.uploads is None and self.bound(settings) is not None:
            return Answer(received.by_mean(settings))
        return super().answer(settings, received)

    def combine(
        self, settings: AggregationSettings, uploads: Uploads, shared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        import torch

        from cloud.uploads import squared_norms, weighted

        norms = squared_norms(uploads).sqrt()
        fixed = self.bound(settings)
        bound = torch.quantile(norms, 0.5) if fixed is None else fixed
        share = (bound / norms.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0) / uploads.clients
        return weighted(uploads, shared, share)
