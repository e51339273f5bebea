"""This shows what privacy costs in utility: who is on the Pareto front, and a chart per kind of epsilon.

Epsilons of different kinds are never compared, nor are metrics of different data sets or protocols.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgefr.report.pages import Spread
from edgefr.report.verdict import FULL, ranked, ranking_of
from edgefr.report.web.chart import Axis, Chart, Point, levels, line, short
from edgefr.studies.sweeps.grid import shown
from edgefr.studies.sweeps.results import EPSILONS, PointResult, level_of, main_metric, mean_references

AMOUNTS = ("privacy.epsilon", "privacy.sigma", "privacy.scale")
"""Fields that say how much noise: points that differ in them alone are one curve."""
NOTHING = "no usable point"


@dataclass(frozen=True)
class Comparable:
    """These are results that may be compared: one data set, protocol and level. `metric`: what their utility is."""

    title: str
    metric: str
    results: tuple[PointResult, ...]

    def worth(self, result: PointResult) -> Spread:
        """Return the utility over seeds."""
        return Spread.of(result.metric(self.metric))

    def known(self, kind: str) -> list[PointResult]:
        """Return the results whose runs know a kind of epsilon."""
        return [result for result in self.results if not math.isnan(result.epsilon(kind))]

    def ends(self, results: Sequence[PointResult]) -> list[float]:
        """Return the ends of the utilities of results, a standard deviation around their means."""
        worths = [self.worth(result) for result in results]
        apart = [(worth.mean, 0.0 if math.isnan(worth.sd) else worth.sd) for worth in worths]
        return [end for mean, sd in apart for end in (mean - sd, mean + sd)]

    def front(self, kind: str) -> list[PointResult]:
        """Return the usable results that are Pareto-optimal among each other for a kind of epsilon, by falling privacy.

        Epsilons that share four digits are one: calibration meets a budget no closer. Where learning did not help in
        every run, a point is worth no epsilon, and is no point of the front.
        """
        places = [(float(f"{result.epsilon(kind):.4g}"), self.worth(result).mean) for result in self.usable]
        return [self.usable[at] for at in sorted(pareto(places), key=lambda at: places[at])]

    @property
    def best_reference(self) -> tuple[str, float] | None:
        """Return the name and the utility of the best that needs no learning; None where there is none."""
        return max(self.references().items(), key=lambda one: one[1], default=None)

    @property
    def usable(self) -> list[PointResult]:
        """Return the results with learning that helped in every run."""
        return [result for result in self.results if result.usable]

    @property
    def ranking(self) -> str:
        """Return how the utility was ranked."""
        return ranking_of(self.results[0].summaries()[0])

    @property
    def judged(self) -> list[str]:
        """Return the metrics, each with its ranking, by which verdicts say whether learning helped."""
        found = [(one.metric, one.ranking) for result in self.results for one in result.verdicts()]
        return [ranked(name, FULL if how == "full" else self.ranking) for name, how in dict.fromkeys(found)]

    def references(self) -> dict[str, float]:
        """Return what needs no learning: the mean over all runs of the group."""
        return mean_references([summary for result in self.results for summary in result.summaries()], self.metric)


def comparables(found: Sequence[PointResult], metric: str | None = None) -> list[Comparable]:
    """Return the chosen results with a finished run, by what may be compared. `metric`: none is the first NDCG."""
    parted: dict[tuple[str, str, str, str], list[PointResult]] = {}
    for result in (one for one in found if one.chosen):
        for summary in result.summaries()[:1]:
            name = metric if metric is not None and metric in summary["metrics"] else main_metric(summary["metrics"])
            parted.setdefault((summary["data"], summary["protocol"], name, level_of(summary)), []).append(result)
    first_words = {how: re.split(r"[:;(,]", how)[0].strip() for _, how, _, _ in parted}
    several = len({level for *_, level in parted}) > 1
    return [
        Comparable(f"{data}, {first_words[how]}{f', {level}' if several else ''}", name, tuple(own))
        for (data, how, name, level), own in parted.items()
    ]


def pareto(places: Sequence[tuple[float, float]]) -> list[int]:
    """Find which (epsilon, utility) nobody beats.

    A point is beaten if another has at most that epsilon and at least that utility, and one of them strictly. Infinity
    is an epsilon like any other; who has a NaN takes no part.

    >>> pareto([(1, 0.1), (8, 0.3), (2, 0.05), (math.inf, 0.3), (math.inf, 0.4)])
    [0, 1, 4]
    """
    known = [at for at, place in enumerate(places) if not any(map(math.isnan, place))]

    def beaten(at: int) -> bool:
        epsilon, worth = places[at]
        return any(
            places[other][0] <= epsilon and places[other][1] >= worth and places[other] != places[at] for other in known
        )

    return [at for at in known if not beaten(at)]


def curves(found: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """Return results by the curve that each is a point of, named by its grid fields but the amount of noise."""
    out: dict[str, list[PointResult]] = {}
    for result in found:
        left = [f"{field} {shown(value)}" for field, value in result.point.values if field not in AMOUNTS]
        out.setdefault(", ".join(left) or "all", []).append(result)
    return out


def charts(group: Comparable, kinds: Collection[str] = EPSILONS) -> list[Chart]:
    """Return utility against each of these kinds of epsilon that is finite for some run, with the Pareto front."""
    return [_chart(group, kind) for kind in kinds if any(math.isfinite(r.epsilon(kind)) for r in group.known(kind))]


def _chart(group: Comparable, kind: str) -> Chart:
    known = group.known(kind)
    scale = Scale.of([result.epsilon(kind) for result in known])
    x = Axis(*scale.limits, tuple((place, label.replace("inf", "∞")) for place, label in scale.ticks.items()), log=True)
    references = [(name, value, False) for name, value in group.references().items()]
    y = Axis.over([*group.ends(known), *(value for _, value, _ in references)])
    named = {**curves(known), "Pareto front": group.front(kind)}
    lines = []
    for color, (name, own) in enumerate((name, own) for name, own in named.items() if own):
        points = list[Point]()
        for result in sorted(own, key=lambda r: r.epsilon(kind)):
            epsilon, worth = result.epsilon(kind), group.worth(result)
            said = f"{result.point.title()}: {kind} epsilon {epsilon_said(epsilon)}, {group.metric} {worth}"
            sd = None if math.isnan(worth.sd) else worth.sd
            points.append(Point(scale.place(epsilon), worth.mean, said, sd))
        lines.append(line(name, color, points, x, y))
    utility = ranked(group.metric, group.ranking)
    said = f"{group.title}: {utility} of test items against the {kind} epsilon, with the deviation over seeds"
    said += "" if group.usable else f"; {NOTHING}"
    across = f"epsilon, {kind}" + ("" if kind == "guaranteed" else ", which is no guarantee")
    return Chart(said, across, utility, x, y, tuple(lines), levels(references, y))


def epsilon_said(value: float) -> str:
    """Write an epsilon for a page."""
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else short(value)


def _label(epsilon: float) -> str:
    """Write an epsilon in the width that a tick has.

    >>> _label(0.1417), _label(8.0), _label(373.6), _label(3.625e5)
    ('0.14', '8', '374', '3.6e5')
    """
    if epsilon < 10 or epsilon >= 1000:
        return f"{epsilon:.2g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    return f"{epsilon:.3g}"


@dataclass(frozen=True)
class Scale:
    """An axis is logarithmic from the lowest to the highest finite epsilon, infinity right and 0 left of it."""

    low: float
    high: float
    ticks: dict[float, str]

    @classmethod
    def of(cls, epsilons: Sequence[float]) -> Scale:
        """Make the axis for these values, ticks where they are (as many as have room)."""
        finite = sorted({e for e in epsilons if 0 < e < math.inf}) or [1.0]
        scale = cls(finite[0], finite[-1], {})
        apart = (scale.limits[1] / scale.limits[0]) ** (1 / 7)
        ticks: dict[float, str] = {}
        for epsilon in finite if any(0 < e < math.inf for e in epsilons) else ():
            if not ticks or epsilon >= apart * max(ticks):
                ticks[epsilon] = _label(epsilon)
        for end, label in ((0.0, "0"), (math.inf, "inf")):
            if end in epsilons:
                ticks[scale.place(end)] = label
        return cls(scale.low, scale.high, ticks)

    @property
    def gap(self) -> float:
        """Return the factor between an end and what is drawn beyond it."""
        return float(max(4.0, (self.high / self.low) ** 0.2))

    def place(self, epsilon: float) -> float:
        """Return where an epsilon is drawn.

        >>> Scale(1.0, 8.0, {}).place(math.inf)
        32.0
        """
        return self.low / self.gap if epsilon == 0 else self.high * self.gap if epsilon == math.inf else epsilon

    @property
    def limits(self) -> tuple[float, float]:
        """Return from where to where the axis goes."""
        left, right = (self.gap ** (1.5 if end in self.ticks.values() else 0.5) for end in ("0", "inf"))
        return self.low / left, self.high * right
