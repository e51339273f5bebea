"""This is the hyper-parameter of EASE^R."""

from pydantic import BaseModel, ConfigDict, Field


class EaseSettings(BaseModel):
    """EASE^R is a linear model of items by items in closed form (Steck 2019)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    ridge: float = Field(200.0, gt=0, description="the ridge, lambda: how far weights are drawn to 0")
