"""These are the settings of rule graph."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cloud.rule import AggregationSettings
from cloud.similarities import SIMILARITIES
from privacy.setting_scope import ReadWith, Settings, named_in


class GraphSettings(AggregationSettings, Settings):
    """These settings say who is like whom."""

    rule: Literal["graph"] = "graph"
    neighbours: int | None = Field(
        None, ge=1, description="the so many most similar clients, itself included; empty: by threshold"
    )
    threshold: Annotated[float, ReadWith("neighbours", None)] = Field(
        1.0, ge=0, description="neighbours are above this multiple of the cohort's mean similarity"
    )
    similarity: Annotated[str, named_in(SIMILARITIES)] = Field(
        "cosine",
        description="similarity of two clients' item tables; distance: 1 - cosine, so that neighbours are those "
        "who differ most, as the released code has it",
    )
