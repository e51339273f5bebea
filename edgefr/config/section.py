"""A section of an experiment is strict and frozen, and has no unknown fields."""

from __future__ import annotations

from pydantic import ConfigDict

from privacy.setting_scope import Settings


class Section(Settings):
    """This is a part of an experiment: unknown keys are refused, and such as nothing reads."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)
