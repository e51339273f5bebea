"""Krum and multi-Krum, against hostile clients: the mean of the most central updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Robust

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.uploads import Uploads


class KrumSettings(AggregationSettings):
    rule: Literal["krum"] = "krum"
    byzantine: float = Field(0.25, ge=0, lt=0.5, description="share of the cohort that is assumed hostile")
    keep: int | None = Field(
        None,
        ge=1,
        description="clients that are averaged; 1: Krum; empty: all that are not assumed hostile (multi-Krum)",
    )


class Krum(Robust):
    """The mean of the clients with the smallest sums of squared distances to their neighbours."""

    name = "krum"
    settings = KrumSettings
    citation = "Blanchard et al. 2017"

    def combine(
        self, settings: AggregationSettings, uploads: Uploads, shared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Raises `InputError` for a cohort too large to compare all pairs."""
        from cloud.uploads import weighted

        assert isinstance(settings, KrumSettings)
        return weighted(uploads, shared, shares(uploads, settings))


def shares(uploads: Uploads, settings: KrumSettings) -> Tensor:
    """Return each client's factor: 1 / kept for those with the smallest sums of squared distances to their neighbours.

    Blanchard et al. 2017: with f hostile ones of n, the neighbours are the n - f - 2 nearest others. The guarantee
    asks for n > 2 f + 2; a smaller cohort still gets its most central members, f a minority and one neighbour at least.
    """
    import torch

    from cloud.uploads import distances

    n = uploads.clients
    hostile = min(math.ceil(settings.byzantine * n - 1e-9), (n - 1) // 2)  # rounded up, where 0.1 * 30 is 3
    kept = min(n - hostile if settings.keep is None else settings.keep, n)
    apart = distances(uploads)
    apart.fill_diagonal_(-1.0)  # first in its row, whatever rounding did to the others
    neighbours = max(n - hostile - 2, 1)
    scores = apart.sort(1).values[:, 1 : 1 + neighbours].sum(1)
    share = torch.zeros(n, dtype=torch.float64, device=scores.device)
    share[scores.argsort(stable=True)[:kept]] = 1.0 / kept
    return share
