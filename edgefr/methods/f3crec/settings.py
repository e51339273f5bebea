"""These settings of learning over blocks say what clients replay and what is carried from block to block."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ContinualSettings(BaseModel):
    """These settings say how knowledge of earlier blocks is kept (F3CRec §4, §5.1).

    The strategy chooses which are used.

    >>> ContinualSettings(kd_weight=0.01).list_size
    30
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    list_size: int = Field(30, ge=1, le=10_000, description="N: items a client remembers of a block (Eq. 1)")
    kd_weight: float = Field(0.1, ge=0, description="weight of replayed examples beside the new ones (Eq. 6)")
    kd_reduction: Literal["mean", "sum"] = Field(
        "mean", description="replayed examples of a client: mean (released code) or sum (Eq. 5 as printed)"
    )
    shift_scale: float = Field(0.006, ge=0, description="epsilon: how fast the memory shrinks with the shift (Eq. 3)")
    reg_weight: float = Field(0.1, ge=0, description="weight of the pull towards the previous block (strategy reg)")
    proxy_rate: float = Field(
        0.7, ge=0, lt=1, description="share of the old proxy that the stability proxy keeps per block (strategy spp)"
    )
    patience: int = Field(30, ge=1, description="rounds without a better validation NDCG that end a block")
    carry: Literal["best", "last"] | None = Field(
        None, description="round a block hands on: best on validation, or last; none: by fidelity"
    )
    reset_private: bool | None = Field(
        None, description="private tensors start anew in every block; none: by fidelity and backbone"
    )
