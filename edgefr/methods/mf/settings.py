"""These are the hyper-parameters of central matrix factorisation."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PMFSettings(BaseModel):
    """PMF is MF by squared error, with Gaussian priors (Salakhutdinov and Mnih, NIPS 2007)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(64, ge=1, le=4096, description="width of user and item vectors")
    lr: float = Field(3e-3, gt=0, description="learning rate of Adam")
    l2: float = Field(0.01, ge=0, description="weight of the squared length of the vectors that a batch reads")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")
    epochs: int = Field(200, ge=1, le=100_000, description="passes over everybody's interactions, at most")
    patience: int = Field(20, ge=1, description="epochs without a better validation after which learning ends")


class MFSettings(PMFSettings):
    """Central MF is BPR-MF (Rendle et al. 2009), or the same vectors by binary cross-entropy or squared error."""

    loss: Literal["bpr", "bce", "squared"] = Field(
        "bpr",
        description="bpr: positives above their negatives; bce: scores as logits of having an item; squared: scores "
        "near 1 and 0, which is PMF",
    )
