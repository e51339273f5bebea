"""This says what utility can be expected of a run that was not made, from measured points, and how sure that is.

A run is placed by the noise-to-signal of what it releases. What curves of other data sets say there is an interval:
from the lowest to the highest of them, their deviation over seeds to both sides, and as much again as data sets that
were held out fell outside at such noise. Nothing is said beyond what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from pydantic import ValidationError

from edgefr.expected.points import DELTA, Curve, Point, curves, noise_to_signal
from edgefr.faults import describe
from privacy.errors import InputError, unknown
from privacy.plan import plan
from privacy.settings import PrivacySettings

EPSILONS = (1.0, 4.0, 8.0, math.inf)
"""Levels that a plan speaks of where none is named."""
NEAR = 6
"""So many held-out points, the nearest in noise, say how much wider an interval is made."""


@dataclass(frozen=True)
class Setting:
    """This is a run that is thought of: all of a cohort release `values` numbers in each of so many rounds."""

    method: str
    cohort: int
    items: int
    rounds: int
    values: int
    trust: str = "central"

    @classmethod
    def of(cls, method: str, cohort: int, items: int, rounds: int, trust: str = "central") -> Setting:
        """Return a run whose model is as wide as those that were measured. Raises `InputError` for others' names.

        >>> Setting.of("fedmf", cohort=943, items=1682, rounds=20).values
        13456
        """
        points = [point for curve in _known(method) for point in curve.points]
        width = per_item(points)
        values = points[0].values if width is None else round(items * width)
        return cls(method, cohort, items, rounds, values, trust)

    def noise(self, epsilon: float) -> float:
        """Return the noise-to-signal at this guarantee, all rounds together."""
        if math.isinf(epsilon):
            return 0.0
        asked = {"mechanism": "gaussian", "trust": self.trust, "clip": 1.0, "epsilon": epsilon, "delta": DELTA}
        try:
            settings = PrivacySettings.model_validate({**asked, "sampler": "float"})
        except ValidationError as error:
            raise InputError(describe(error, PrivacySettings)) from error
        resolved = plan(settings, self.rounds, self.cohort, self.cohort)
        return noise_to_signal(resolved.std_on_mean, 1.0, self.values, self.rounds)


def per_item(points: Sequence[Point]) -> float | None:
    """Return the released values per item; None where they do not go by items.

    Catalogues may hold items that nobody had, which count among values and not among the items of a data set.
    """
    widths = [point.values / point.items for point in points]
    return round(median(widths), 1) if max(widths) < 1.05 * min(widths) else None


@dataclass(frozen=True)
class Range:
    """This is what is expected, and from where to where it may lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Expected:
    """This is what is expected at one epsilon: shares of the best that needs no learning, and of the gain that is kept.

    Both are None where nothing was measured, and `why` says so. `near`: the measured points that it goes by.
    """

    epsilon: float
    noise: float
    share: Range | None
    kept: Range | None
    near: tuple[Point, ...]
    why: str = ""

    @property
    def verdict(self) -> str:
        """Say whether such a run would be worth it."""
        if self.share is None:
            return "not measured"
        if self.share.low > 1:
            return "usable"
        return "no usable point" if self.share.high <= 1 else "not certain"


@dataclass(frozen=True)
class HeldOut:
    """This is how far off expectations were for data sets that took no part in them.

    `errors` of each point, measured less expected; `misses`: its noise, and how far beyond the others' span it lay.
    """

    errors: tuple[float, ...]
    misses: tuple[tuple[float, float], ...]

    @property
    def inside(self) -> int:
        """Count the points within the plain span of the other data sets."""
        return sum(miss == 0 for _, miss in self.misses)

    def outside(self, noise: float) -> float:
        """Return how far beyond that span the points nearest in noise lay at most."""
        nearest = sorted(self.misses, key=lambda one: _apart(one[0], noise))[:NEAR]
        return max((miss for _, miss in nearest), default=math.inf)

    @property
    def typical(self) -> float:
        """Return the mean size of an error."""
        return float(np.mean(np.abs(self.errors))) if self.errors else math.nan


def expect(setting: Setting, epsilons: Sequence[float] = EPSILONS) -> list[Expected]:
    """Return what utility can be expected of a run at each guarantee.

    Raises `InputError` for a method without measured points and for impossible counts.

    >>> expect(Setting.of("fedmf", cohort=943, items=10**8, rounds=20), [8.0])[0].verdict
    'not measured'
    """
    _known(setting.method)
    return [_expected(setting, epsilon) for epsilon in epsilons]


def alike(method: str, rounds: int) -> tuple[Curve, ...]:
    """Return the curves of a method with about as many rounds: half to twice as many.

    Rounds cancel out of the noise-to-signal only where updates keep their direction, as FedMF's first ones do not.
    """
    return tuple(c for c in _known(method) if 0.5 <= c.points[0].rounds / max(rounds, 1) <= 2)


def _known(method: str) -> tuple[Curve, ...]:
    found = curves()
    if method not in found:
        raise unknown("measured method", method, tuple(found))
    return found[method]


def _expected(setting: Setting, epsilon: float) -> Expected:
    if not epsilon > 0:
        raise InputError(f"epsilon must be above 0, got {epsilon:g}")
    noise, every = setting.noise(epsilon), _known(setting.method)
    known = alike(setting.method, setting.rounds)
    near = tuple(min(curve.points, key=lambda point: _apart(point.noise, noise)) for curve in known or every)
    why = _beyond(setting, noise, every, known)
    if why:
        return Expected(epsilon, noise, None, None, near, why)
    share, kept = (_range(known, noise, what, held_out(known, what).outside(noise)) for what in ("share", "kept"))
    return Expected(epsilon, noise, share, kept, near)


def _apart(one: float, other: float) -> float:
    return abs(math.log1p(1000 * one) - math.log1p(1000 * other))


def _beyond(setting: Setting, noise: float, every: Sequence[Curve], known: Sequence[Curve]) -> str:
    """Say what of a setting was not measured; nothing where all of it was. `known`: curves of about as many rounds."""
    points = [point for curve in every for point in curve.points]
    out = []
    for words, asked, there in (
        ("clients in a round", setting.cohort, [p.cohort for p in points]),
        ("items", setting.items, [p.items for p in points]),
        ("released values", setting.values, [p.values for p in points]),
        ("rounds", setting.rounds, [p.rounds for p in points]),
    ):
        if not min(there) <= asked <= max(there):
            out.append(f"{asked:,} {words}, measured: {min(there):,} to {max(there):,}")
    sources = {curve.source for curve in known}
    reach = sorted(max(c.points[-1].noise for c in known if c.source == source) for source in sources)
    if len(reach) < 2:
        out.append(f"about {setting.rounds:,} rounds were measured on fewer than two data sets")
    elif noise > reach[-2]:
        out.append(f"noise of {noise:.3g} times the signal, measured on two data sets: 0 to {reach[-2]:.3g}")
    return "; ".join(out)


def _range(known: Sequence[Curve], noise: float, what: str, outside: float) -> Range:
    """Return the mean of what data sets say, and the interval; without noise all of the gain is kept."""
    if noise == 0 and what == "kept":
        return Range(1.0, 1.0, 1.0)
    low, mean, high = _hull(known, noise, what)
    return Range(mean, low - outside, high + outside)


def _hull(known: Sequence[Curve], noise: float, what: str) -> tuple[float, float, float]:
    """Return lowest, mean and highest of the curves that reach this noise; every data set counts once in the mean."""
    by_source: dict[str, list[tuple[float, float]]] = {}
    for curve in known:
        if curve.covers(noise):
            by_source.setdefault(curve.source, []).append(curve.at(noise, what))
    ends = [(mean - sd, mean + sd) for found in by_source.values() for mean, sd in found]
    means = [float(np.mean([mean for mean, _ in found])) for found in by_source.values()]
    return min(low for low, _ in ends), float(np.mean(means)), max(high for _, high in ends)


def held_out(known: Sequence[Curve], what: str = "share") -> HeldOut:
    """Expect every data set's points from the other data sets alone, and say how far off that was."""
    errors, misses = [], []
    for source in sorted({curve.source for curve in known}):
        others = [curve for curve in known if curve.source != source]
        for point in (p for curve in known if curve.source == source for p in curve.points):
            if not any(curve.covers(point.noise) for curve in others):
                continue
            low, mean, high = _hull(others, point.noise, what)
            found = getattr(point, what).mean
            errors.append(found - mean)
            misses.append((point.noise, max(low - found, found - high, 0.0)))
    return HeldOut(tuple(errors), tuple(misses))
