"""The points of a trade-off, in full ranking: utility over seeds, what an epsilon means, and what attacks reached."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from edgefr.report.audit import read_attacks
from edgefr.report.pages import Spread
from edgefr.report.verdict import FULL
from edgefr.studies.sweeps.grid import shown
from edgefr.studies.sweeps.results import FinishedSweep, PointResult, SweepRun, results
from edgefr.studies.sweeps.tradeoff import Comparable, comparables
from edgefr.studies.tradeoffs.run import PRICES
from edgefr.studies.tuning.private import INTERACTION, Price
from privacy.errors import InputError

METRICS = ("NDCG@10", "HR@10")
"""What utility is, the first first, where a run has it."""
ITEMS = ("sign-split", "gradient-matching")
"""Attacks that tell which items a person had."""


@dataclass(frozen=True)
class TradeoffPoint:
    """A point is one epsilon of a curve. `epsilon`: asked for (None: neither clip nor noise); `given`: not tuned.

    `attacks`: what the audit of one of its runs found, by attack; `price`: of its search, where anything is promised.
    """

    result: PointResult
    epsilon: float | None
    curve: str
    interaction: bool
    attacks: Mapping[str, Mapping[str, Any]]
    price: Price | None
    given: bool = False

    @property
    def name(self) -> str:
        """Return its epsilon in words."""
        if self.epsilon is None:
            return "not private"
        return "∞ (clip alone)" if math.isinf(self.epsilon) else f"{self.epsilon:g}"

    @property
    def report(self) -> dict[str, Any]:
        """Return what its first run says of privacy, at the level that the sweep is about."""
        found: dict[str, Any] = self.result.summaries()[0]["privacy"]
        return dict(found["examples"]) if self.interaction and found.get("examples") else found

    @property
    def guaranteed(self) -> float:
        """Return what is guaranteed: the largest epsilon over seeds."""
        reports = (one["privacy"] for one in self.result.summaries())
        return max(float((one.get("examples") or one if self.interaction else one)["eps_guaranteed"]) for one in reports)

    def utility(self, metric: str) -> Spread:
        """Return a metric over seeds."""
        return Spread.of(self.result.metric(metric))

    def ends(self, metric: str) -> tuple[float, float] | None:
        """Return the ends of the 95 % interval of the mean over seeds, by Student's t; None for one seed."""
        found = self.utility(metric)
        if found.number < 2:
            return None
        half = float(stdtrit(found.number - 1, 0.975)) * found.sd / math.sqrt(found.number)
        return found.mean - half, found.mean + half

    def items(self) -> Mapping[str, Any] | None:
        """Return the attack that told most of a person's items; None where none could be made."""
        made = [self.attacks[name] for name in ITEMS if self.attacks.get(name, {}).get("auc") is not None]
        return max(made, key=lambda row: row["auc"], default=None)

    def most_right(self, row: Mapping[str, Any]) -> float | None:
        """Return the highest share of right answers, of pairs, that is promised against an attack; None: of items.

        The guarantee says how far somebody's presence shows, and between two of a person's histories lie two such steps
        under zero-out adjacency (group privacy).
        """
        epsilon, delta = self.guaranteed, float(self.report["delta"])
        if row["unit"] not in ("client", "interaction"):
            return None
        if row["unit"] == "interaction" and not self.interaction and self.report["adjacency"] == "zero-out":
            return most_right(2 * epsilon, delta * (1 + math.exp(min(epsilon, 700.0))))
        return most_right(epsilon, delta)


def most_right(epsilon: float, delta: float) -> float:
    """Return the largest area under a ROC curve that (epsilon, delta)-DP allows (Kairouz, Oh & Viswanath 2015).

    >>> round(most_right(0.0, 0.0), 3), round(most_right(1.0, 0.0), 3), most_right(math.inf, 0.0)
    (0.5, 0.731, 1.0)
    """
    if epsilon > 30.0 or delta >= 1.0:
        return 1.0
    e = math.exp(epsilon)
    turn, end = (1 - delta) / (1 + e), 1 - delta
    rising = e * turn**2 / 2 + delta * turn
    return rising + (end - turn) - ((end - turn) ** 2 / 2) / e + delta


def in_full(run: SweepRun) -> SweepRun:
    """Return a run with its metrics, and those of what needs no learning, in full ranking where it has that."""
    summary = run.summary
    if summary is None or not (full := summary.get("metrics_full_ranking")):
        return run
    split, ranked = summary["split"], summary["full_ranking"]
    names = summary["references"].get(split, {})
    references = {split: {name: ranked[split][name] for name in names if name in ranked[split]}}
    return replace(run, summary=summary | {"metrics": full, "references": references, "ranked": FULL})


@dataclass(frozen=True)
class Tradeoff:
    """This is a finished trade-off over one data set: its `points`, those `given` by hand, and the `group` of all."""

    group: Comparable
    points: tuple[TradeoffPoint, ...]
    given: tuple[TradeoffPoint, ...]

    @property
    def curves(self) -> dict[str, list[TradeoffPoint]]:
        """Return the points by the curve they are on."""
        out: dict[str, list[TradeoffPoint]] = {}
        for point in self.points:
            out.setdefault(point.curve, []).append(point)
        return out

    @property
    def metrics(self) -> list[str]:
        """Return the metrics that are shown, the one that is utility first."""
        known = self.group.results[0].summaries()[0]["metrics"]
        return list(dict.fromkeys([self.group.metric, *(name for name in METRICS if name in known)]))

    def best(self, curve: str) -> TradeoffPoint | None:
        """Return the best point of a curve whose updates carry no noise: what the others are measured by."""
        bare = [p for p in self.curves[curve] if p.epsilon is None or math.isinf(p.epsilon)]
        return max(bare, key=lambda one: one.utility(self.group.metric).mean, default=None)

    def kept(self, point: TradeoffPoint) -> float:
        """Return what a point keeps of the best without noise, as a share; NaN where there is none."""
        best = self.best(point.curve)
        whole = math.nan if best is None else best.utility(self.group.metric).mean
        return point.utility(self.group.metric).mean / whole if whole else math.nan


def tradeoffs(sweep: FinishedSweep) -> list[Tradeoff]:
    """Return what a finished sweep came to, by data set and protocol."""
    prices = _prices(sweep.folder)
    tuned = comparables(results([in_full(run) for run in sweep.speaking]), METRICS[0])
    given = results([in_full(run) for run in sweep.entries if run.trial is None])
    out = []
    for group in tuned:
        points = tuple(_point(result, sweep, prices) for result in group.results)
        names = {point.curve for point in points}
        beside = [replace(_point(result, sweep, {}), given=True) for result in given if result.entries]
        out.append(Tradeoff(group, points, tuple(point for point in beside if point.curve in names)))
    return out


def _point(result: PointResult, sweep: FinishedSweep, prices: Mapping[str, Price]) -> TradeoffPoint:
    at = sweep.record["epsilon"]
    asked = {field: shown(value) for field, value in result.point.values}
    said = asked.pop(at)
    epsilon, rest = None if said == "none" else float(said), asked.values()
    found = {row["attack"]: row for row in read_attacks(sweep.folder / result.entries[0].path)}
    paid, interaction = prices.get(result.point.name), sweep.record["privacy"] == INTERACTION.name
    return TradeoffPoint(result, epsilon, ", ".join(rest), interaction, found, paid)


def _prices(folder: Path) -> dict[str, Price]:
    try:
        found = json.loads((folder / PRICES).read_text(encoding="utf-8"))
        return {name: Price(**paid) for name, paid in found.items() if paid is not None}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"cannot read {folder / PRICES}: {error}; go on with the sweep by --resume {folder}") from None


def largest(points: Sequence[TradeoffPoint]) -> TradeoffPoint | None:
    """Return the point with the largest epsilon that is finite: where most is kept under a guarantee."""
    noised = [p for p in points if p.epsilon is not None and math.isfinite(p.epsilon)]
    return max(noised, key=lambda one: one.epsilon or 0.0, default=None)
