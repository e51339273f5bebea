"""These are the hyper-parameters of EMCDR."""

from typing import Annotated, Literal

from pydantic import Field

from edgefr.methods.mf.settings import MFSettings
from privacy.belongs import ReadWith, Settings

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
