"""These are FedSASRec's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from privacy.setting_scope import Settings


class FedSASRecSettings(Settings):
    """FedSASRec is SASRec (Kang and McAuley, ICDM 2018) whose clients learn from all that their user has, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dim: int = Field(32, ge=1, description="width of item vectors and features (values)")
    length: int = Field(20, ge=1, le=1024, description="positions of a window: the newest items of a user (items)")
    heads: int = Field(1, ge=1, description="attention heads; must divide dim")
    layers: int = Field(1, ge=1, description="blocks of the encoder")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first item vectors")
    lr: float = Field(0.03, gt=0, description="learning rate of Adam on the device")
    beta_2: float = Field(0.98, gt=0, lt=1, description="Adam's decay of the second moment")
    loss: Literal["bce", "softmax"] = Field(
        "bce", description="bce: binary cross-entropy with sampled negatives; softmax: over the target and them"
    )
