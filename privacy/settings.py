"""What an experiment says about privacy. Owns the fields and their rules; `plan` derives the numbers."""

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Kind = Literal["laplace", "gaussian"]
Norm = Literal["l1", "l2"]
Trust = Literal["local", "central"]


class PrivacySettings(BaseModel):
    """Clip and noise of the updates, and whom the clients trust.

    The noise is named in one of three ways: `sigma` (relative to the clip), `epsilon` (calibrated for all
    rounds) or `scale` (absolute, as papers print it). Without a clip nothing is guaranteed, whatever the
    noise.

    >>> PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, epsilon=8.0).sensitivity
    2.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    mechanism: Literal["none", "laplace", "gaussian"] = Field("none", description="law of the noise; none: no noise")
    trust: Trust = Field(
        "central",
        description="local: each client noises its own upload; central: the server noises the sum once",
    )
    clip: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="bound on the norm of a client's whole update (all tensors jointly)",
    )
    norm: Norm = Field("l2", description="norm that is clipped")
    sigma: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="standard deviation of the noise / clip; a Laplace scale is b = sigma * clip / sqrt(2)",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="epsilon to keep over all rounds; the noise is calibrated to it; inf: clip, no noise",
    )
    scale: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="absolute noise, in units of the update: std of a Gaussian, b of a Laplace",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of (epsilon, delta); should be below 1 / clients")

    @model_validator(mode="after")
    def _one_noise(self) -> Self:
        given = [name for name in ("sigma", "epsilon", "scale") if getattr(self, name) is not None]
        if self.mechanism == "none":
            if given:
                raise ValueError(f"{given[0]} needs a mechanism: set mechanism to gaussian or laplace")
            return self
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"{self.mechanism} noise needs exactly one of sigma, epsilon, scale; got {found}")
        if self.clip is None and given[0] != "scale":
            raise ValueError(
                f"{given[0]} needs a clip: set clip, or give the noise as scale (which guarantees nothing)"
            )
        return self

    @property
    def adjacency(self) -> Literal["replace-one", "zero-out"]:
        """Which two worlds are compared: a client's data replaced by other data, or its update by zeros."""
        return "replace-one" if self.trust == "local" else "zero-out"

    @property
    def sensitivity(self) -> float:
        """Farthest one client can move what is noised, in `norm`: 2 C local, C central, inf without a clip.

        In the local model another user's data may turn an update of norm C into its opposite; in the central
        model one client's clipped update is there or is zeros.
        """
        if self.clip is None:
            return math.inf
        return 2.0 * self.clip if self.trust == "local" else self.clip
