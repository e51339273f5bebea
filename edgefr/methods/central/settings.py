"""These are the hyper-parameters of central matrix factorisation."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from privacy.setting_scope import ReadWith, Settings


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


class CMFSettings(MFSettings):
    """CMF is MF of two domains that shares users' vectors (Singh and Gordon 2008), as TransFR's rival of PMF's loss."""

    loss: Literal["bpr", "bce", "squared"] = Field("squared", description="as of mf; squared makes it of PMF's kind")
    source_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the source's loss (alpha); the target's is what is left of 1"
    )
    folds: int = Field(
        5, ge=2, le=100, description="parts of the users: each is tested as cold by a model without its target items"
    )


class EaseSettings(BaseModel):
    """EASE^R is a linear model of items by items in closed form (Steck 2019)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    ridge: float = Field(200.0, gt=0, description="the ridge, lambda: how far weights are drawn to 0")


MLP = ReadWith("mapping", "mlp")


class EMCDRSettings(MFSettings, Settings):
    """EMCDR is MF in each domain and a mapping of users' vectors between them (Man et al. 2017)."""

    loss: Literal["bpr", "bce", "squared"] = Field(
        "squared", description="as of mf, in both domains; squared makes them of PMF's kind"
    )
    mapping: Literal["linear", "mlp"] = Field(
        "mlp", description="linear: a matrix, in closed form; mlp: one hidden layer with tanh"
    )
    ridge: float = Field(1.0, ge=0, description="weight of the squared length of the mapping, beside a sum of errors")
    hidden: Annotated[int, MLP] = Field(64, ge=1, le=4096, description="mlp: width of the hidden layer")
    mapping_steps: Annotated[int, MLP] = Field(200, ge=1, le=100_000, description="mlp: steps on all users at once")
    mapping_lr: Annotated[float, MLP] = Field(0.01, gt=0, description="mlp: learning rate of Adam")
    folds: int = Field(
        5, ge=2, le=100, description="parts of the users: each is tested as cold by what was learned on the others"
    )


class NeuMFSettings(BaseModel):
    """NeuMF is GMF and an MLP with vectors of their own, fused in the last layer (He et al. 2017, §3.4)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=4096, description="width of GMF's user and item vectors")
    tower: list[int] = Field(
        [64, 32, 16], min_length=1, description="widths of the MLP, its input first: a user's and an item's vector"
    )
    lr: float = Field(2e-3, gt=0, description="learning rate of Adam")
    l2: float = Field(0.001, ge=0, description="weight of the squared length of the vectors that a batch reads")
    init_scale: float = Field(0.01, gt=0, description="standard deviation of the first vectors")
    epochs: int = Field(100, ge=1, le=100_000, description="passes over everybody's interactions, at most")
    patience: int = Field(10, ge=1, description="epochs without a better validation after which learning ends")

    @field_validator("tower")
    @classmethod
    def _two_vectors(cls, tower: list[int]) -> list[int]:
        if min(tower) < 1 or tower[0] % 2:
            raise ValueError(f"widths are at least 1, and the first is even, of two vectors; got {tower}")
        return tower
