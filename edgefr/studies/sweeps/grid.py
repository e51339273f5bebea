"""A grid goes over fields of an experiment: axes, their product, names of points, ranges that a search chooses from."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from edgefr.config.documents import value_of
from privacy.errors import InputError, unknown

MOST_POINTS = 10_000
LONGEST_NAME = 120
NOT_SWEPT = {
    "seed": "every point is run with the same seeds; use --seeds and --seed",
    "name": "runs are folders named by their point",
}
"""Fields that no axis may name, and what to do instead."""
Scale = Literal["log", "uniform", "int"]


@dataclass(frozen=True)
class Axis:
    """This is a field of the experiment by its dotted name, and the values it takes."""

    field: str
    values: tuple[Any, ...]

    @classmethod
    def parse(cls, text: str) -> Axis:
        """`field=[value, value, ...]`, a YAML list; `inf` and `1e-3` are numbers. Raises `InputError`.

        >>> Axis.parse("privacy.epsilon=[1, 8, inf]")
        Axis(field='privacy.epsilon', values=(1, 8, inf))
        """
        field, given = split(text, "--grid", "'privacy.epsilon=[1,8,inf]'")
        values = value_of(given, f"--grid {text}", f"the values are not a YAML list; write {field}=[a, b]")
        if not isinstance(values, list):
            raise InputError(f"--grid {text}: the values have to be a list; write {field}=[{given.strip() or 'a, b'}]")
        return cls.of(field, [_number(value) for value in values], f"--grid {text}")

    @classmethod
    def of(cls, field: str, values: Sequence[Any], source: str) -> Axis:
        """Return the axis of these values. Raises `InputError`, which names `source`, for none and for two the same."""
        if not values:
            raise InputError(f"{source}: the list is empty; give at least one value")
        for value, again in itertools.combinations(map(shown, values), 2):
            if value == again:
                raise InputError(f"{source}: {value} is given twice; keep one")
        return cls(field, tuple(values))


@dataclass(frozen=True)
class Point:
    """A point has one value per axis, in their order. `name`: of its folder; only letters, digits and `._=,-`.

    >>> Point.of((("privacy.epsilon", 8), ("method", "fedmf"))).name
    'privacy.epsilon=8,method=fedmf'
    """

    values: tuple[tuple[str, Any], ...]
    name: str

    @classmethod
    def of(cls, values: Sequence[tuple[str, Any]]) -> Point:
        """Return a point by its values. A name that does not tell all of them ends with a digest of them."""
        exact = ",".join(f"{field}={shown(value)}" for field, value in values) or "all"
        name = re.sub(r"[^A-Za-z0-9._=,-]+", "-", exact)
        if name != exact or len(name) > LONGEST_NAME or name != name.lower():  # capitals are no difference everywhere
            digest = hashlib.sha256(exact.encode("utf-8", "backslashreplace")).hexdigest()[:8]
            name = f"{name[: LONGEST_NAME - 9]}-{digest}"
        return cls(tuple(values), name)

    def title(self) -> str:
        """Return the point in words, for tables and messages."""
        return ", ".join(f"{field} {shown(value)}" for field, value in self.values) or "all"


@dataclass(frozen=True)
class Range:
    """A range holds values of one field from `low` to `high`: uniform, uniform in the logarithm, or whole numbers."""

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
        field, given = split(text, "--search-space", "'privacy.clip=log(0.1,10)'")
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

    def __str__(self) -> str:
        return f"{self.scale}({self.low:g}, {self.high:g})"

    @property
    def ends(self) -> tuple[Any, Any]:
        """The lowest and the highest value, as the experiment would get them."""
        return (int(self.low), int(self.high)) if self.scale == "int" else (self.low, self.high)


def product(axes: Sequence[Axis]) -> list[Point]:
    """Return every combination, the last axis fastest; one point without values where there is no axis.

    Raises `InputError` for a field given twice or inside another, and for more than 10,000 points.

    >>> [point.name for point in product([Axis("rounds", (1, 2)), Axis("method", ("fedmf",))])]
    ['rounds=1,method=fedmf', 'rounds=2,method=fedmf']
    """
    apart([axis.field for axis in axes], "--grid")
    if math.prod(len(axis.values) for axis in axes) > MOST_POINTS:
        raise InputError(f"the grid has more than {MOST_POINTS:,} points; give --grid fewer values")
    combined = itertools.product(*([(axis.field, value) for value in axis.values] for axis in axes))
    return [Point.of(values) for values in combined]


def apart(fields: Iterable[str], option: str) -> None:
    """Check that no field is named twice, holds another, or is not to be swept. Raises `InputError`."""
    seen: list[str] = []
    for field in fields:
        if field in NOT_SWEPT:
            raise InputError(f"{option}: {field} cannot be swept: {NOT_SWEPT[field]}")
        for other in seen:
            if field == other:
                raise InputError(f"{option}: {field} is given twice; put all its values into one")
            if f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}."):
                raise InputError(f"{option}: {other} and {field} speak of the same field; keep one")
        seen.append(field)


def split(text: str, option: str, example: str) -> tuple[str, str]:
    """`field=...` as the field's dotted name and the rest. Raises `InputError` where there is no such field."""
    field, sign, given = text.partition("=")
    parts = [part.strip() for part in field.split(".")]
    if not sign or not all(parts):
        raise InputError(f"{option} takes FIELD=..., got '{text}'; for example {option} {example}")
    return ".".join(parts), given


def shown(value: Any) -> str:
    """Return a value as text: words as they are, everything else as `canonical`.

    >>> shown("fedmf"), shown(8.0), shown(float("inf")), shown(None), shown([16, 8])
    ('fedmf', '8', 'inf', 'none', '[16,8]')
    """
    return value if isinstance(value, str) else "none" if value is None else canonical(value)


def canonical(value: Any) -> str:
    """Return a value as JSON that equal values share, 1 and 1.0 are one; infinity is `inf`."""
    if isinstance(value, float):
        return "inf" if value == math.inf else str(int(value)) if value.is_integer() else repr(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def _number(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[+-]?(inf|nan|\d+(\.\d*)?e[+-]?\d+)", value.strip(), re.IGNORECASE):
        return float(value)
    return value


def _bound(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e15:
        raise InputError(f"--search-space {whole}: '{text.strip()}' is no number to begin or end with")
    return value
