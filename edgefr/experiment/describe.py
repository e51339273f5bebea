"""An experiment is described by what differs from what its choices start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgefr.config.display import MORE

if TYPE_CHECKING:
    pass

CHOICES = ("method", "backbone", "strategy", "fidelity", "protocol.name")
"""Fields that others start from: those always stand there where they are not the default."""


def _leaves(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    return dict(_under(values, at))


def _under(values: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _under(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _value(value: Any) -> str:
    shown = "null" if value is None else str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}{MORE}"
