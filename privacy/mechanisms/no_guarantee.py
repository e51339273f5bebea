"""A mechanism here guarantees nothing: there is no noise, or noise without a clip, as papers add it."""

from collections.abc import Callable
from typing import Literal, Self

from pydantic import Field, model_validator

from privacy.mechanism import NoGuarantee
from privacy.settings import PrivacySettings


class NoNoiseSettings(PrivacySettings):
    """These are the settings where no noise is drawn."""

    mechanism: Literal["none"] = "none"


class PaperLaplaceSettings(PrivacySettings):
    """These are the settings of Laplace noise of an absolute scale on updates as they are.

    >>> PrivacySettings(mechanism="paper-laplace", scale=0.5).law
    'laplace'
    """

    mechanism: Literal["paper-laplace"] = "paper-laplace"
    scale: float = Field(
        gt=0, allow_inf_nan=False, description="absolute noise, in units of the update: b of a Laplace"
    )

    @model_validator(mode="after")
    def _clips_nothing(self) -> Self:
        if self.clip is not None:
            raise ValueError("paper-laplace is noise on updates that nobody clipped: drop clip, or use laplace")
        return self

    @property
    def law(self) -> str:
        return "laplace"

    def scale_for(self, calibrated: Callable[[float], float]) -> float:
        return self.scale


class NoNoise(NoGuarantee):
    """The update leaves in the clear, clipped or not."""

    name = "none"
    settings = NoNoiseSettings
    unknown = "everything: the update leaves in the clear"


class PaperLaplace(NoGuarantee):
    """Laplace noise on unclipped updates: a report says that it guarantees nothing."""

    name = "paper-laplace"
    settings = PaperLaplaceSettings


class Unclipped(NoGuarantee):
    """Noise of any law on unclipped updates, as a ledger notes it; no experiment chooses it."""

    name = "unclipped"
    settings = None
