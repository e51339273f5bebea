"""These are the hyper-parameters of CMF."""

from typing import Literal

from pydantic import Field

from edgefr.methods.mf.settings import MFSettings


class CMFSettings(MFSettings):
    """CMF is MF of two domains that shares users' vectors (Singh and Gordon 2008), as TransFR's rival of PMF's loss."""

    loss: Literal["bpr", "bce", "squared"] = Field("squared", description="as of mf; squared makes it of PMF's kind")
    source_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the source's loss (alpha); the target's is what is left of 1"
    )
    folds: int = Field(
        5, ge=2, le=100, description="parts of the users: each is tested as cold by a model without its target items"
    )
