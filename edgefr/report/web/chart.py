"""Figures are numbers here: axes with ticks, and marks whose places are percentages of a figure's width and height.

>>> Axis.over([0.0, 0.4]).place(0.1)
25.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgefr.report.fleet import short

MOST_MARKS = 60
"""Marks of one line; of more points every n-th has one, and the line goes through all."""


@dataclass(frozen=True)
class Axis:
    """An axis goes from `low` to `high`, with `ticks` (value, label), in equal steps or, `log`, in equal factors."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], *, most: int = 6, whole: bool = False, tight: bool = False) -> Axis:
        """Return an axis over zero and all values; `whole`: of whole numbers; `tight`: it ends with the last value."""
        known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(0.0, *known), max(0.0, *known)
        high = high if high > low else 1.0
        step = _step((high - low) / most)
        step = max(1.0, step) if whole else step
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        ticks = tuple((number * step, f"{number * step:,.{digits}f}") for number in range(first, last + 1))
        end = max(*known, ticks[0][0] + step) if tight else ticks[-1][0]
        return cls(ticks[0][0], end, tuple(tick for tick in ticks if tick[0] <= end * (1 + 1e-9)))

    @classmethod
    def decades(cls, values: Sequence[float], unit: str = "") -> Axis:
        """Return a logarithmic axis over all positive values, from one round number to another."""
        known = [value for value in values if math.isfinite(value) and value > 0] or [1.0, 10.0]
        low, high = math.floor(math.log10(min(known)) + 1e-9), math.ceil(math.log10(max(known)) - 1e-9)
        high = max(high, low + 1)
        every = -(-(high - low) // 3)
        ticks = tuple((10.0**n, f"{short(10.0**n)}{unit}") for n in range(low, high + 1, every))
        return cls(10.0**low, 10.0**high, ticks, log=True)

    def place(self, value: float) -> float:
        """Return where a value lies between the ends, in percent; what lies beyond is put at the end."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = (math.log10(value) if value > 0 else low) if self.log else value
        return round(100 * min(1.0, max(0.0, (at - low) / (high - low))), 2)

    def strip(self, value: float | None, low: float | None, high: float | None, said: str) -> Strip | None:
        """Return a value with its interval as one mark on this axis; None where there is no value."""
        if value is None:
            return None
        ends = None if low is None or high is None else (self.place(low), self.place(high))
        return Strip(self.place(value), ends, said)

    @property
    def marks(self) -> list[tuple[float, str]]:
        """Return the ticks as (place, label)."""
        return [(self.place(value), label) for value, label in self.ticks]

    @property
    def origin(self) -> float | None:
        """Return where zero lies, if it is on the axis."""
        return self.place(0.0) if not self.log and self.low <= 0 <= self.high else None


@dataclass(frozen=True)
class Strip:
    """This is one value on an axis: its place, the `ends` of its interval, and what it says.

    `points`: values that it is the mean of, each with what it says.
    """

    place: float
    ends: tuple[float, float] | None
    said: str
    points: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Mark:
    """This is one point of a figure: `x` and `y` in percent from the lower left, and what it says."""

    x: float
    y: float
    said: str
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Point:
    """This is a measured point: what it says, and the `spread` to each side of `y`, where it is known."""

    x: float
    y: float
    said: str
    spread: float | None = None


@dataclass(frozen=True)
class Line:
    """A line goes through all its points; `color` numbers a colour of the page, `path` is drawn in a square of 100."""

    name: str
    color: int
    path: str
    marks: tuple[Mark, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Level:
    """A level is a value that does not change along x: `place` and where its `label` fits beside others, in percent."""

    name: str
    value: float
    place: float
    label: float
    said: str
    learned: bool


@dataclass(frozen=True)
class Chart:
    """A chart has two axes, lines and levels. `about`: what it shows, in words; `rules`: (place, label) along x."""

    about: str
    x_title: str
    y_title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()
    rules: tuple[tuple[float, str], ...] = ()


def line(name: str, color: int, points: Sequence[Point], x: Axis, y: Axis, steps: bool = False) -> Line:
    """Return a line through points in their order; `steps`: it stays at a value until the next."""
    places = [(x.place(p.x), y.place(p.y)) for p in points]
    parts: list[str] = []
    for number, (across, up) in enumerate(places):
        turn = f"H{across:g}" if steps and number else ""
        parts.append(f"{turn}{'L' if number else 'M'}{across:g} {100 - up:g}")
    every = -(-len(points) // MOST_MARKS) if points else 1
    kept = [n for n in range(len(points)) if n % every == 0 or n == len(points) - 1]
    return Line(name, color, "".join(parts), tuple(_mark(points[n], x, y) for n in kept), tuple(points))


def _mark(point: Point, x: Axis, y: Axis) -> Mark:
    ends = None
    if point.spread is not None and math.isfinite(point.spread):
        ends = (y.place(point.y - point.spread), y.place(point.y + point.spread))
    return Mark(x.place(point.x), y.place(point.y), point.said, ends)


def levels(values: Sequence[tuple[str, float, bool]], axis: Axis, gap: float = 7.0) -> tuple[Level, ...]:
    """Return (name, value, learned) as levels, the highest first, with labels at least `gap` percent apart.

    >>> [one.label for one in levels([("a", 0.5, True), ("b", 0.49, False)], Axis.over([0, 1]))]
    [53.0, 46.0]
    """
    found = sorted(values, key=lambda one: -one[1])
    places = [axis.place(value) for _, value, _ in found]
    labels = apart(places, gap)
    return tuple(
        Level(name, value, place, label, f"{name}: {value:.4f}", learned)
        for (name, value, learned), place, label in zip(found, places, labels, strict=True)
    )


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Move falling places as little as needed until neighbours are `gap` apart.

    >>> apart([90.0, 50.0, 50.0], 10.0)
    [90.0, 55.0, 45.0]
    """
    groups: list[list[float]] = []  # each: sum of what its first label should be, and how many it holds
    for place in places:
        groups.append([place, 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] - gap * groups[-2][1] < groups[-1][0] / groups[-1][1]:
            total, number = groups.pop()
            groups[-1][0] += total + gap * groups[-1][1] * number
            groups[-1][1] += number
    return [round(total / number - gap * place, 2) for total, number in groups for place in range(int(number))]


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))
