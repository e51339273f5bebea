"""What utility can be expected of a run that was not made, from points that were measured, and how sure that is.

A run is placed by the noise-to-signal of what it releases. What curves of other data sets say there is an interval:
from the lowest to the highest of them, their deviation over seeds to both sides, and as much again as data sets that
were held out fell outside. Nothing is said beyond what was measured.
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
COVER = 0.9
"""The share of held-out points for which an interval is made wide enough."""


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
    """This is how far off expectations were for data sets that took no part in them: errors of `share`."""

    errors: tuple[float, ...]
    inside: int
    outside: float

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
    known = _known(setting.method)
    return [_expected(setting, epsilon, known) for epsilon in epsilons]


def _known(method: str) -> tuple[Curve, ...]:
    found = curves()
    if method not in found:
        raise unknown("measured method", method, tuple(found))
    return found[method]


def _expected(setting: Setting, epsilon: float, known: Sequence[Curve]) -> Expected:
    if not epsilon > 0:
        raise InputError(f"epsilon must be above 0, got {epsilon:g}")
    noise = setting.noise(epsilon)
    near = tuple(min(curve.points, key=lambda point: _apart(point.noise, noise)) for curve in known)
    why = _beyond(setting, noise, known)
    if why:
        return Expected(epsilon, noise, None, None, near, why)
    share, kept = (_range(known, noise, what, held_out(setting.method, what).outside) for what in ("share", "kept"))
    return Expected(epsilon, noise, share, kept, near)


def _apart(one: float, other: float) -> float:
    return abs(math.log1p(1000 * one) - math.log1p(1000 * other))


def _beyond(setting: Setting, noise: float, known: Sequence[Curve]) -> str:
    """Say what of a setting was not measured; nothing where all of it was."""
    points = [point for curve in known for point in curve.points]
    out = []
    for words, asked, there in (
        ("clients in a round", setting.cohort, [p.cohort for p in points]),
        ("items", setting.items, [p.items for p in points]),
        ("released values", setting.values, [p.values for p in points]),
        ("rounds", setting.rounds, [p.rounds for p in points]),
    ):
        if not min(there) <= asked <= max(there):
            out.append(f"{asked:,} {words}, measured: {min(there):,} to {max(there):,}")
    if len({curve.source for curve in known if curve.covers(noise)}) < 2:
        most = sorted(
            {c.source: max(o.points[-1].noise for o in known if o.source == c.source) for c in known}.values()
        )
        out.append(f"noise of {noise:.3g} times the signal, measured on two data sets: 0 to {most[-2]:.3g}")
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


def held_out(method: str, what: str = "share") -> HeldOut:
    """Expect every data set's points from the other data sets alone, and say how far off that was.

    `inside`: points within the plain span of the others; `outside`: how far beyond it nine in ten points lie at most.
    """
    known = _known(method)
    errors, misses = [], []
    for source in sorted({curve.source for curve in known}):
        others = [curve for curve in known if curve.source != source]
        for point in (p for curve in known if curve.source == source for p in curve.points):
            if not any(curve.covers(point.noise) for curve in others):
                continue
            low, mean, high = _hull(others, point.noise, what)
            found = getattr(point, what).mean
            errors.append(found - mean)
            misses.append(max(low - found, found - high, 0.0))
    outside = float(np.quantile(misses, COVER, method="higher")) if misses else math.inf
    return HeldOut(tuple(errors), sum(miss == 0 for miss in misses), outside)
