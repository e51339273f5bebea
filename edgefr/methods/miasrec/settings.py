"""These are MiaSRec's settings."""

from __future__ import annotations

from pydantic import Field, model_validator

from edgefr.methods.prefix_settings import PrefixSettings


class MiaSRecSettings(PrefixSettings):
    """MiaSRec is self-attention over a session that keeps one representation of each of its items."""

    heads: int = Field(1, ge=1, description="attention heads; must divide dim")
    layers: int = Field(1, ge=1, description="blocks of the encoder")
    repeats: int = Field(2, ge=1, description="how often an item may have come in a session and be told from fewer")
    most: float = Field(
        0.9, ge=0, le=1, description="share of the best representation in a score; the rest is of the mean over them"
    )
    temperature: float = Field(0.07, gt=0, description="what scores, which are cosines, are divided by in the loss")

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> MiaSRecSettings:
        if self.dim % self.heads:
            raise ValueError(f"heads {self.heads} does not divide dim {self.dim}: take a divisor of it")
        return self
