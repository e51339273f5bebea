"""These settings are common to session methods that encode every prefix of a window on its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, field_validator

from edgefr.methods.fcucr.parts import LOSSES
from privacy.setting_scope import Settings, named_in


class PrefixSettings(Settings):
    """A program of prefixes has item vectors of unit length, a window, an Adam and a loss."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dim: int = Field(50, ge=1, description="width of item vectors (values)")
    length: int = Field(15, ge=1, le=1024, description="positions of a window: the newest items of a session (items)")
    init_scale: float = Field(
        0.0003,
        gt=0,
        description="standard deviation of the first item vectors, which are read at unit length: the smaller, the "
        "further an update turns them",
    )
    lr: float = Field(0.1, gt=0, description="learning rate of Adam")
    beta_2: float = Field(0.98, gt=0, lt=1, description="Adam's decay of the second moment")
    loss: Annotated[str, named_in(LOSSES)] = Field(
        "softmax", description="bce: binary cross-entropy with sampled negatives; softmax: over the target and them"
    )
    temperature: float = Field(1.0, gt=0, description="what scores are divided by in the loss")

    @field_validator("loss")
    @classmethod
    def _of_samples(cls, loss: str) -> str:
        if LOSSES[loss].whole:
            raise ValueError(f"{loss} is for one vector per position, and these methods have several: use softmax")
        return loss
