"""A section of a page: the template of its name shows its values, below its title."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A section has a name (its anchor), a title, and the values that its template shows.

    `template` is the name of it (default: the section's own).
    """

    name: str
    title: str
    values: Mapping[str, Any]
    template: str = ""

    @property
    def file(self) -> str:
        """Return the file of the template."""
        return f"{self.template or self.name}.html"
