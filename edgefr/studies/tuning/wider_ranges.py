"""A best value at the edge of its range says that the range was too narrow: it is widened, within the same budget.

After every batch but the first, whoever's best value lies within a twentieth of an end has that end moved outward, by
a decade (logarithmic ranges) or by half the range. Nobody gets more trials for it. Where the setting ends sooner, so
does the range, and an end that lies there already stays.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgefr.studies.sweeps.grid import Range
from edgefr.studies.sweeps.search import BATCH, EndedTrial, best_of

EDGE = 0.05
"""The share of a range, in its own scale, that counts as its edge."""
FIRST_LOOK = 2 * BATCH
"""No range is widened before so many trials."""

PARTS = 1024
"""Where a setting ends is found to this part of a step; for whole numbers exactly."""

Allowed = Callable[[Range], bool]
"""Whether the experiment takes every value of a range."""


@dataclass(frozen=True)
class Widened:
    """A range was widened after so many trials: from what to what."""

    after: int
    before: Range
    now: Range

    def __str__(self) -> str:
        return f"{self.now.field}: {self.before} became {self.now} after {self.after} trials"


def edge(r: Range, value: float) -> int:
    """Return -1 where a value is at the lower edge of its range, 1 at the upper one, 0 elsewhere.

    >>> edge(Range("model.lr", "log", 0.1, 10.0), 9.9), edge(Range("model.lr", "log", 0.1, 10.0), 1.0)
    (1, 0)
    """
    low, high, at = (math.log(v) if r.scale == "log" else v for v in (r.low, r.high, value))
    place = (at - low) / (high - low)
    return -1 if place <= EDGE else 1 if place >= 1 - EDGE else 0


def wider(r: Range, side: int) -> Range:
    """Return the range with one end moved outward.

    >>> wider(Range("model.lr", "log", 0.1, 10.0), 1)
    Range(field='model.lr', scale='log', low=0.1, high=100.0)
    >>> wider(Range("model.dim", "int", 8, 16), -1)
    Range(field='model.dim', scale='int', low=4, high=16)
    """
    if r.scale == "log":
        return replace(r, high=r.high * 10) if side > 0 else replace(r, low=r.low / 10)
    step = (r.high - r.low) / 2
    step = max(1, math.ceil(step)) if r.scale == "int" else step
    return replace(r, high=r.high + step) if side > 0 else replace(r, low=r.low - step)


def moved(r: Range, side: int, allowed: Allowed) -> Range | None:
    """Return the range with one end moved outward, by one step or as far as the setting goes; None where it ends there.

    >>> moved(Range("model.dim", "int", 8, 3000), 1, lambda r: r.high <= 4096)
    Range(field='model.dim', scale='int', low=8, high=4096)
    """
    whole = wider(r, side)
    if allowed(whole):
        return whole
    begin, end = (r.high, whole.high) if side > 0 else (r.low, whole.low)
    parts = int(abs(end - begin)) if r.scale == "int" else PARTS

    def ending(at: float) -> Range:
        return replace(r, high=at) if side > 0 else replace(r, low=at)

    def part(number: int) -> Range:
        """Move the end by so many of equal parts of a step, in the range's own scale."""
        if r.scale == "int":
            return ending(begin + side * number)
        share = number / parts
        by = begin * (end / begin) ** share if r.scale == "log" else begin + (end - begin) * share
        return ending(by)

    taken = bisect_left(range(1, parts), True, key=lambda number: not allowed(part(number)))
    if not taken:
        return None
    found = part(taken)
    neat = ending(float(f"{found.ends[side > 0]:.2g}"))
    beyond = (neat.high > found.high or neat.low < found.low) and r.scale != "int"
    return neat if beyond and allowed(neat) else found


def at_edges(ranges: Sequence[Range], best: EndedTrial | None, allowed: Allowed) -> list[tuple[Range, Range]]:
    """Return ranges at whose edge the best value lies, if they can be widened, each with what it would become."""
    if best is None:
        return []
    found = [(r, edge(r, float(best.trial.values[r.field]))) for r in ranges]
    outward = [(r, moved(r, side, allowed)) for r, side in found if side]
    return [(r, now) for r, now in outward if now is not None]


def widened(
    ranges: Sequence[Range], ended: Sequence[EndedTrial], trials: int, allowed: Allowed
) -> tuple[list[Range], list[Widened]]:
    """Return the ranges that the next batch is drawn from, and their history, by the trials that have ended alone."""
    now, steps = list(ranges), list[Widened]()
    for after in range(FIRST_LOOK, min(len(ended), trials - 1) + 1, BATCH):
        for before, after_it in at_edges(now, best_of(ended[:after]), allowed):
            now[now.index(before)] = after_it
            steps.append(Widened(after, before, after_it))
    return now, steps
