"""A plan is shown in words and tables: what utility can be expected, from which points, and how far off it has been."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from edgefr.expected.expect import EPSILONS, NEAR, Expected, Range, Setting, alike, expect, held_out, per_item
from edgefr.expected.points import DELTA, METRIC, Curve
from edgefr.report.brief import Brief
from edgefr.report.layout import Sheet

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTHING = "no usable point"
UNITS = (
    f"utility: {METRIC} of test items among 1 + 99 candidates, as a share of the best reference that needs no learning "
    "(above 1: better than it); kept: of what the same run gains over chance without noise"
)


@dataclass(frozen=True, repr=False)
class Plan(Brief):
    """This is what can be expected of a setting, at one or more levels of privacy."""

    setting: Setting
    expected: Sequence[Expected]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """Return the curves that it goes by, those of about as many rounds."""
        return alike(self.setting.method, self.setting.rounds)

    @property
    def verdict(self) -> str:
        """Say in one line at which of the levels such a run would be worth it."""
        by = {word: [name(one.epsilon) for one in self.expected if one.verdict == word] for word in WORDS}
        told = [f"{WORDS[word]} at epsilon {', '.join(found)}" for word, found in by.items() if found]
        if by[NOTHING] and not by["usable"] and not by["not certain"] and not by["not measured"]:
            return f"{NOTHING}: at no epsilon above is learning expected to be better than what needs none"
        return "; ".join(told)

    @property
    def sheet(self) -> Sheet:
        """Return a row per epsilon."""
        s = self.setting
        rows = [
            {
                "epsilon": name(one.epsilon),
                "noise / signal": f"{one.noise:.3g}",
                "of the best\nwithout learning": said(one.share),
                "kept of the\ngain over chance": said(one.kept),
                "worth it?": one.verdict,
            }
            for one in self.expected
        ]
        title = (
            f"{s.method}, {s.cohort:,} clients in every one of {s.rounds:,} rounds, {s.items:,} items, {s.trust} trust"
        )
        return Sheet(title, rows, words=["worth it?"])

    @property
    def notes(self) -> list[str]:
        """Return how the numbers came about: the points, how far off held-out data sets were, what was not measured."""
        why = list(dict.fromkeys(one.why for one in self.expected if one.why))
        lines = [f"not measured: {reason}" for reason in why]
        lines += (
            [f"nearest measured: {line}" for line in self.nearest] if why else [f"from {one}" for one in self.nearest]
        )
        return [*lines, self.trusted, UNITS, *self.recipes]

    @property
    def nearest(self) -> list[str]:
        """Return the nearest point of every curve, of the epsilon that was asked for last and is not infinite."""
        finite = [one for one in self.expected if math.isfinite(one.epsilon)] or list(self.expected)
        return [
            f"{p.data} (epsilon {name(p.epsilon)}, {p.cohort:,} clients, {p.items:,} items, {p.rounds} rounds, noise / "
            f"signal {p.noise:.3g}): {p.share.mean:.2f} of the best without learning, {p.kept.mean:.2f} kept"
            for p in finite[-1].near
        ]

    @property
    def trusted(self) -> str:
        """Say how far off plans were for data sets that they knew nothing of."""
        found = held_out(self.curves)
        if not found.errors:
            return "nothing was measured on two data sets, so nothing says how far off this would be"
        return (
            f"each data set expected from the others: off by {found.typical:.2f} of the best without learning on "
            f"average, {max(map(abs, found.errors)):.2f} at most; {found.inside} of {len(found.errors)} points lay "
            f"within the others' span, so each interval is wider by what the {NEAR} nearest of them missed at most"
        )

    @property
    def recipes(self) -> list[str]:
        """Say what the measured runs have in common."""
        if not self.curves:
            return []
        seeds = max(p.share.number for curve in self.curves for p in curve.points)
        width = per_item([p for curve in self.curves for p in curve.points])
        size = f"{self.setting.values:,} values in all" if width is None else f"{width:g} values per item"
        return [
            f"measured with Gaussian noise at delta {DELTA:g}, clip 1, everybody in every round, {size}, up to {seeds} "
            "seeds; the server's rate was chosen on validation items, nothing else was: a longer search finds more"
        ]

    def record(self) -> dict[str, Any]:
        """Return it as plain values for JSON; infinity is "inf"."""
        found = held_out(self.curves)
        rows = [
            {
                "epsilon": "inf" if math.isinf(one.epsilon) else one.epsilon,
                "noise_to_signal": one.noise,
                "share_of_best_reference": None if one.share is None else asdict(one.share),
                "kept": None if one.kept is None else asdict(one.kept),
                "verdict": one.verdict,
                "not_measured": one.why or None,
                "nearest": [p.data for p in one.near],
            }
            for one in self.expected
        ]
        error = {"mean": found.typical if found.errors else None, "points": len(found.errors), "inside": found.inside}
        return {**asdict(self.setting), "metric": METRIC, "expected": rows, "held_out": error, "verdict": self.verdict}

    def brief(self) -> list[RenderableType]:
        """Return the verdict, the table and the first notes."""
        return [self.verdict, self.sheet, *self.notes[:8]]


WORDS = {
    "usable": "better than what needs no learning",
    "not certain": "not certain",
    NOTHING: NOTHING,
    "not measured": "not measured",
}


def expected_utility(
    method: str,
    cohort: int,
    items: int,
    rounds: int,
    epsilons: Sequence[float] = (),
    trust: str = "central",
) -> Plan:
    """Say what utility can be expected of a cohort, a catalogue, rounds and guarantees, without running anything.

    Raises `InputError` for a method that was not measured and for impossible counts.

    Example: ``edgefr.expected_utility("fedmf", cohort=943, items=1682, rounds=20, epsilons=[8]).verdict``
    """
    setting = Setting.of(method, cohort, items, rounds, trust)
    return Plan(setting, expect(setting, epsilons or EPSILONS))


def name(epsilon: float) -> str:
    """Write an epsilon.

    >>> name(8.0), name(math.inf)
    ('8', 'inf')
    """
    return f"{epsilon:g}"


def said(found: Range | None) -> str:
    """Write a range.

    >>> said(Range(1.0, 0.9, 1.25)), said(None)
    ('1.00 [0.90, 1.25]', '-')
    """
    return "-" if found is None else f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"
