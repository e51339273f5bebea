"""These are the hyper-parameters of federated collaborative filtering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from edgefr.config.validation import fault

if TYPE_CHECKING:
    from edgefr.experiment.method import Context


class FCFSettings(BaseModel):
    """FCF is weighted least squares over all items (2019); its server reads `aggregation.lr` and `ridge`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=256, description="width of user and item vectors")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first item vectors")
    alpha: float = Field(
        1.0, ge=0, description="confidence in what a user had is 1 + alpha, in everything else it is 1"
    )
    ridge: float = Field(10.0, gt=0, description="weight of a user vector's squared length (lambda)")


def check(context: Context) -> None:
    """Refuse, by `edgefr.config.validation.fault`, choices of an experiment that do not go with FCF."""
    if context.privacy.tensors is not None:
        raise fault("a gradient over the catalogue has two parts, and its server needs both", "privacy", "tensors")
    if context.evaluation.tables == "own":
        raise fault("clients of fcf send a gradient and move no table of their own; drop it", "evaluation", "tables")
