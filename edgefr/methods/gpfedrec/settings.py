"""These are the hyper-parameters of GPFedRec."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class GPFedRecSettings(BaseModel):
    """GPFedRec is PFedRec whose item rows are held near those of similar clients (Zhang et al., KDD 2024)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors")
    init_scale: float = Field(1.0, gt=0, description="standard deviation of the first item vectors")
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the private scorer")
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows; none: lr x (number of items x 80 - 1), as released",
    )
    pull: float = Field(
        1.0, ge=0, description="weight of the mean squared distance to the table the server made for the client"
    )
    recommends: Literal["graph", "global"] = Field(
        "graph",
        description="the table a client recommends from: the one the server made for it, or the one all start from",
    )
