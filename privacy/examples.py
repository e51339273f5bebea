"""These settings are what an experiment says about the privacy of single interactions."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ExampleSettings(BaseModel):
    """This is DP-SGD on the device: every example's gradient is clipped, and every step's sum is noised.

    One example is one interaction with the negatives drawn for it. This is a guarantee about an interaction, not about
    a client: it neither needs nor replaces clip and noise of whole updates. `delta` is that of the privacy settings.

    >>> ExampleSettings(clip=1.0, sigma=2.0).sigma
    2.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    clip: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="bound on the L2 norm of an example's gradient (all trained tensors jointly)",
    )
    sigma: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="standard deviation of the noise of a step's summed gradients / clip",
    )
    epsilon: float | None = Field(
        None, gt=0, description="epsilon to keep over all steps; the noise is calibrated to it; inf: clip, no noise"
    )

    @model_validator(mode="after")
    def _one_noise(self) -> Self:
        if (self.sigma is None) == (self.epsilon is None):
            found = "neither" if self.sigma is None else "both"
            raise ValueError(f"noise of examples needs exactly one of sigma, epsilon; got {found}")
        return self
