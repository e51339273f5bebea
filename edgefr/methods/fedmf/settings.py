"""These are the hyper-parameters of federated matrix factorisation."""

from pydantic import Field

from edgefr.methods.objectives import ObjectiveSettings


class FedMFSettings(ObjectiveSettings):
    """FedMF has a private user vector and a shared item table, inner product (F3CRec §5.1; Chai et al. 2020)."""

    dim: int = Field(32, ge=1, le=4096, description="width of user and item vectors")
    init_scale: float = Field(0.01, gt=0, description="standard deviation of the first vectors")
    lr: float = Field(1.0, gt=0, description="SGD learning rate of the user vector")
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows; none: lr x number of items, as the released F3CRec code does "
        "(an item's mean-BCE gradient shrinks with the number of examples and clients)",
    )
