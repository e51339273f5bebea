"""These are HearInt's settings."""

from __future__ import annotations

from pydantic import Field

from edgefr.methods.prefix_settings import PrefixSettings


class HearIntSettings(PrefixSettings):
    """HearInt reads a session in order for the short term, and as a graph for the long term."""

    temperature: float = Field(0.077, gt=0, description="what scores, which are cosines, are divided by in the loss")
    apart: float = Field(
        0.4,
        ge=0,
        lt=1,
        description="how much less an item counts while a client trains that points away from the newest (in order) or "
        "from the session's mean (in the graph)",
    )
    contrast: float = Field(0.2, ge=0, description="weight of the contrast of prefixes with their targets in the loss")
    contrast_temperature: float = Field(0.1, gt=0, description="what cosines are divided by in the contrast")
