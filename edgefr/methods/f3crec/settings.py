"""These settings of learning over blocks say what clients replay and what is carried from block to block."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

BETWEEN_BLOCKS: Mapping[str, Any] = {
    "carry": "best",
    "reset_private": False,
    "redraw": "round",
    "labels": "kept",
    "item_rate": "catalogue",
}
"""What a run over blocks does where nobody asks, and where the released code of its backbone does nothing else."""


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
    redraw: Literal["round", "step"] | None = Field(
        None,
        description="how often a client draws what it replays: once a round, or, as released, for every step by the "
        "scores that its tensors then give, of which those that are rounded to 0 or 1 teach nothing; none: by fidelity",
    )
    labels: Literal["kept", "anew"] | None = Field(
        None,
        description="predictions that remembered items have: kept from the last block that a client was in, or made "
        "anew for everybody at the end of every block; none: by fidelity",
    )
    reg_weight: float = Field(0.1, ge=0, description="weight of the pull towards the previous block (strategy reg)")
    proxy_rate: float = Field(
        0.7, ge=0, lt=1, description="share of the old proxy that the stability proxy keeps per block (strategy spp)"
    )
    patience: int = Field(30, ge=1, description="rounds without a better validation NDCG that end a block")
    item_rate: Literal["catalogue", "present"] | None = Field(
        None,
        description="items that multiply the learning rate of item rows where model.item_lr is not set: all of the "
        "catalogue, or those of the blocks so far; none: by fidelity",
    )
    carry: Literal["best", "last"] | None = Field(
        None, description="round a block hands on: best on validation, or last; none: by fidelity"
    )
    reset_private: bool | None = Field(
        None, description="private tensors start anew in every block; none: by fidelity and backbone"
    )
