"""These are the hyper-parameters of federated neural collaborative filtering."""

from typing import Annotated, Literal

from pydantic import Field

from edgefr.methods.objectives import ObjectiveSettings
from privacy.setting_scope import ReadWith


class FedNCFSettings(ObjectiveSettings):
    """FedNCF has private user vectors and a shared item table (Perifanis & Efraimidis 2022; F3CRec §5.1)."""

    dim: int = Field(32, ge=1, le=4096, description="width of user and item vectors")
    init_scale: float = Field(
        1.0, gt=0, description="standard deviation of the first vectors (the default of torch's embeddings)"
    )
    scorer: Literal["linear", "mlp"] = Field(
        "linear",
        description="linear: F3CRec's, one private layer, which ranks without the user vector; mlp: a network on "
        "[user, item] that the server averages, as in FedNCF's paper",
    )
    hidden: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], ReadWith("scorer", "mlp")] = Field(
        [32, 16, 8], min_length=1, description="widths of the network's hidden layers, from the input on"
    )
    user_start: Literal["own", "same"] = Field(
        "own", description="first user vectors: one of every client's own, or the same for all (released F3CRec code)"
    )
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the scorer or network (F3CRec §5.1: 0.01 to 0.1)")
    user_lr: float | None = Field(
        None, gt=0, description="SGD learning rate of the user vector; none: lr x 170, as the released F3CRec code does"
    )
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows; none: lr x number of items x 170, as the released F3CRec code "
        "does (an item's mean-BCE gradient shrinks with the number of examples and clients)",
    )
