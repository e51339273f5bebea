"""A search may choose from one range per field, as `--search-space` writes it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from edgefr.studies.sweeps.grid import split
from privacy.errors import InputError, unknown

Scale = Literal["log", "uniform", "int"]
EXAMPLE = "'privacy.clip=log(0.1,10)'"


@dataclass(frozen=True)
class Range:
    """A range holds values of one field between `low` and `high`, both included.

    They are uniform, uniform in the logarithm, or whole numbers.
    """

    field: str
    scale: Scale
    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Range:
        """`field=log(low,high)`, `uniform(low,high)` or `int(low,high)`. Raises `InputError`.

        >>> Range.parse("aggregation.server_lr=log(0.1, 30)")
        Range(field='aggregation.server_lr', scale='log', low=0.1, high=30.0)
        """
        field, given = split(text, "--search-space", EXAMPLE)
        found = re.fullmatch(r"\s*(\w+)\s*\(([^,()]*),([^,()]*)\)\s*", given)
        if found is None:
            raise InputError(f"--search-space {text}: write log(low,high), uniform(low,high) or int(low,high)")
        scale, *bounds = found.groups()
        if scale not in get_args(Scale):
            raise unknown("scale of --search-space", scale, get_args(Scale))
        low, high = (_bound(bound, text) for bound in bounds)
        if low >= high:
            raise InputError(f"--search-space {text}: the lower bound comes first and is below the upper one")
        if scale == "log" and low <= 0:
            raise InputError(f"--search-space {text}: a logarithm needs bounds above 0; use uniform")
        if scale == "int" and not (low.is_integer() and high.is_integer()):
            raise InputError(f"--search-space {text}: int takes whole numbers")
        return cls(field, scale, low, high)  # type: ignore[arg-type]

    @property
    def ends(self) -> tuple[Any, Any]:
        """The lowest and the highest value, as the experiment would get them."""
        return (int(self.low), int(self.high)) if self.scale == "int" else (self.low, self.high)


def _bound(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e15:
        raise InputError(f"--search-space {whole}: '{text.strip()}' is no number to begin or end with")
    return value
