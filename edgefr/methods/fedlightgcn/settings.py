"""These are the hyper-parameters of LightGCN on a client's own graph."""

from typing import Literal

from pydantic import Field

from edgefr.methods.objectives import ObjectiveSettings


class FedLightGCNSettings(ObjectiveSettings):
    """FedLightGCN has a private user vector, a shared item table and light convolutions (He et al., SIGIR 2020)."""

    dim: int = Field(32, ge=1, le=4096, description="width of user and item vectors")
    layers: int = Field(2, ge=1, le=8, description="convolutions over the client's own graph")
    neighbours: int = Field(
        20, ge=1, le=200, description="items of the graph: the newest so many that the client had before a positive"
    )
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the user vector")
    item_lr: float | None = Field(
        None, gt=0, description="SGD learning rate of item rows; none: lr x number of items, as for fedmf"
    )
    loss: Literal["bpr", "softmax"] = Field(
        "bpr",
        description="how a positive is compared with the negatives drawn for it: bpr as LightGCN's own, or softmax",
    )
