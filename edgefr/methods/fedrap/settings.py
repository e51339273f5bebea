"""These are the hyper-parameters of FedRAP."""

from pydantic import Field

from edgefr.methods.objectives import ObjectiveSettings


class FedRAPSettings(ObjectiveSettings):
    """FedRAP has a shared and a private item table that are added up (Li, Long & Zhou, ICLR 2024)."""

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors")
    init_scale: float = Field(1.0, gt=0, description="standard deviation of the first rows of the shared table")
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the private scorer")
    item_lr: float | None = Field(
        None, gt=0, description="SGD learning rate of the shared rows; none: lr x number of items x 80, as for PFedRec"
    )
    own_lr: float = Field(
        1.0,
        ge=0,
        description="SGD learning rate of the private rows, whose steps no mean over clients makes smaller. At the "
        "released code's, that of shared rows, they unlearn what the clients know together",
    )
    apart: float = Field(
        0.01, ge=0, description="weight of the term that drives private rows away from shared ones (the paper's lambda)"
    )
    sparse: float = Field(0.01, ge=0, description="weight of the l1 norm of the shared rows (the paper's mu)")
    curriculum: float | None = Field(
        10.0,
        gt=0,
        description="rounds over which both weights grow, as tanh(round / curriculum); none: they are constant, as in "
        "the released code, which computes the growing weights and does not use them",
    )
