"""These are the hyper-parameters of federated reconstruction."""

from pydantic import Field

from edgefr.methods.objectives import ObjectiveSettings


class FedReconSettings(ObjectiveSettings):
    """FedRecon is matrix factorisation whose user vectors nobody keeps (Singhal et al., NeurIPS 2021, §4.1, §5)."""

    dim: int = Field(32, ge=1, le=4096, description="width of user and item vectors")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors, and of each fresh start")
    support: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="share of a client's items that its vector is rebuilt on; the item vectors learn from the others",
    )
    rebuild_epochs: int = Field(
        3, ge=1, le=1000, description="passes over the support set that rebuild the vector (k_r); of all, to recommend"
    )
    rebuild_lr: float = Field(5.0, gt=0, description="SGD learning rate of the user's vector (eta_r)")
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows (eta_u); none: the number of items (an item's mean-BCE gradient "
        "shrinks with the number of examples and clients)",
    )
