"""Laplace noise as papers add it, to updates nobody clipped: it guarantees nothing, and a report says so."""

from collections.abc import Callable
from typing import Literal, Self

from pydantic import Field, model_validator

from privacy.mechanism import NoGuarantee
from privacy.settings import PrivacySettings


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


class PaperLaplace(NoGuarantee):
    """Laplace noise on unclipped updates."""

    name = "paper-laplace"
    settings = PaperLaplaceSettings
    unknown = "everything: without a clip the noise bounds nothing"
    citation = "none: nothing is claimed"
