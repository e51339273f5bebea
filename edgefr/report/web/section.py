"""A section of a page: the template of its name shows its values, below its title."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A section has a name (of its template and its anchor), a title, and the values that the template shows."""

    name: str
    title: str
    values: Mapping[str, Any]
