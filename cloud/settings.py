"""These are the settings of the cloud room, checked on their own; what depends on a teacher is checked with it."""

from typing import Annotated

from pydantic import Field, model_validator

from cloud.distillation import _Settings
from cloud.pooling import POOLINGS
from privacy.setting_scope import named_in


class EncodeSettings(_Settings):
    """These settings say how a text becomes one vector."""

    pooling: Annotated[str, named_in(POOLINGS)] = Field(
        "mean",
        description="'cls': the first token's state (TransFR Eq. 11); 'mean': the mean over all tokens",
    )
    max_tokens: int = Field(128, ge=3, description="longest text, in tokens; the rest is cut off")


class PretrainSettings(_Settings):
    """These are the settings of training a BERT from scratch as a masked language model."""

    layers: int = Field(4, ge=1, description="Transformer layers")
    hidden: int = Field(312, ge=1, description="width of the model")
    heads: int = Field(12, ge=1, description="attention heads; must divide hidden")
    vocabulary: int = Field(8000, ge=100, description="largest WordPiece vocabulary, in tokens")
    steps: int = Field(10_000, ge=1, description="optimiser steps")
    batch_size: int = Field(32, ge=1, description="texts per step")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens to be guessed")
    max_tokens: int = Field(128, ge=3, le=512, description="longest text, in tokens; the rest is cut off")
    lr: float = Field(5e-4, gt=0, description="highest learning rate of Adam")
    warmup: int = Field(500, ge=0, description="steps over which the learning rate rises; it then falls linearly to 0")
    seed: int = Field(0, description="seed of the first weights, the masks and the order of batches")

    @model_validator(mode="after")
    def _heads_divide(self) -> "PretrainSettings":
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden: {self.hidden} is not a multiple of {self.heads}")
        return self
