"""A point of a trade-off has its utility over seeds, in full ranking, and what attacks reached of what is promised."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scipy.special import stdtrit

from edgefr.report.audit import read_attacks
from edgefr.report.pages import Spread
from edgefr.studies.sweeps.results import INTERACTION, FinishedSweep, PointResult, SweepRun, results
from edgefr.studies.sweeps.tradeoff import Comparable, comparables
from edgefr.studies.tradeoffs.run import PRICES
from privacy.errors import InputError

METRICS = ("NDCG@10", "HR@10")
"""What utility is, the first first, where a run has it."""
ITEMS = ("sign-split", "gradient-matching")
"""Attacks that tell which items a person had."""


@dataclass(frozen=True)
class TradeoffPoint:
    """A point is one epsilon: what was asked for (None: neither clip nor noise). `given`: not tuned.

    `attacks`: what the audit of one of its runs found, by attack; `price`: of its search, where anything is promised.
    """

    result: PointResult
    epsilon: float | None
    attacks: Mapping[str, Mapping[str, Any]]
    price: Mapping[str, Any] | None
    given: bool = False

    @property
    def name(self) -> str:
        """Return its epsilon in words."""
        said = "not private" if self.epsilon is None else f"{self.epsilon:g}".replace("inf", "∞ (clip alone)")
        return f"{said}, as given" if self.given else said

    @property
    def promises(self) -> bool:
        """Say whether anything is promised."""
        return math.isfinite(self.guaranteed)

    @property
    def guaranteed(self) -> float:
        """Return what is guaranteed: the largest epsilon over seeds."""
        return self.result.epsilon("guaranteed")

    @property
    def told(self) -> dict[str, Any]:
        """Return what its first run says of privacy, at the level that the sweep is about."""
        summary = self.result.summaries()[0]
        found: dict[str, Any] = summary["privacy"]
        return (found.get("examples") or found) if summary["level"] == INTERACTION else found

    def value(self, metric: str) -> float:
        """Return the mean of a metric over seeds."""
        return Spread.of(self.result.metric(metric)).mean

    def half(self, metric: str) -> float:
        """Return half the 95 % interval of the mean over seeds, by Student's t; NaN for one seed."""
        found = Spread.of(self.result.metric(metric))
        return math.nan if found.number < 2 else float(stdtrit(found.number - 1, 0.975)) * found.sd / found.number**0.5

    def attack(self, *names: str) -> Mapping[str, Any] | None:
        """Return the attack of these names that told most; None where none could be made."""
        made = [self.attacks[name] for name in names if self.attacks.get(name, {}).get("auc") is not None]
        return max(made, key=lambda row: row["auc"], default=None)

    def most_right(self, row: Mapping[str, Any]) -> float | None:
        """Return the largest share of right answers, of pairs, that is promised against an attack; None: of items.

        Zero-out adjacency says how far somebody's presence shows. Between two histories of a person lie two such steps.
        """
        epsilon, delta = self.guaranteed, float(self.told["delta"])
        if row["unit"] == self.told["unit"]:
            return most_right(epsilon, delta)
        if row["unit"] != "interaction":
            return None
        steps = 2 if self.told["adjacency"] == "zero-out" else 1
        return most_right(steps * epsilon, delta * (1 + math.exp(min(epsilon, 700.0)) * (steps - 1)))


def most_right(epsilon: float, delta: float) -> float:
    """Return the largest area under a ROC curve that (epsilon, delta)-DP allows (Kairouz, Oh & Viswanath 2015).

    >>> round(most_right(0.0, 0.0), 3), round(most_right(1.0, 0.0), 3), most_right(math.inf, 0.0)
    (0.5, 0.731, 1.0)
    """
    if epsilon > 30.0 or delta >= 1.0:
        return 1.0
    e, end = math.exp(epsilon), 1 - delta
    turn = end / (1 + e)
    return e * turn**2 / 2 + delta * turn + (end - turn) - (end - turn) ** 2 / (2 * e) + delta


@dataclass(frozen=True)
class Tradeoff:
    """This is a finished trade-off: its `points` in the order of the grid, those `given` by hand, all as a `group`."""

    group: Comparable
    points: tuple[TradeoffPoint, ...]
    given: tuple[TradeoffPoint, ...]

    @property
    def metrics(self) -> list[str]:
        """Return the metrics that are shown, the one that is utility first."""
        known = self.group.results[0].summaries()[0]["metrics"]
        return list(dict.fromkeys([self.group.metric, *(name for name in METRICS if name in known)]))

    @property
    def best(self) -> TradeoffPoint | None:
        """Return the best tuned point without noise, which the others are measured by."""
        bare = [point for point in self.points if not point.promises]
        return max(bare, key=lambda one: one.value(self.group.metric), default=None)

    @property
    def largest(self) -> TradeoffPoint | None:
        """Return the tuned point with the largest epsilon of those that promise something."""
        return max((point for point in self.points if point.promises), key=lambda one: one.guaranteed, default=None)

    def kept(self, point: TradeoffPoint) -> float:
        """Return what a point keeps of the best without noise, as a share; NaN where there is none."""
        whole = math.nan if self.best is None else self.best.value(self.group.metric)
        return point.value(self.group.metric) / whole if whole else math.nan


def tradeoff_of(sweep: FinishedSweep) -> Tradeoff | None:
    """Return what a finished sweep came to; None where no run ended. Raises `InputError` for a damaged folder."""
    path = sweep.folder / PRICES
    try:
        prices = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read {path}: {error}; continue the sweep with --resume {sweep.folder}") from None
    level = sweep.record["privacy"]
    found = comparables(results([_at(run, level) for run in sweep.speaking]), METRICS[0])
    beside = [one for one in results([_at(run, level) for run in sweep.entries if run.trial is None]) if one.entries]
    if not found:
        return None
    points = [_point(result, sweep, prices) for result in found[0].results]
    return Tradeoff(found[0], tuple(points), tuple(replace(_point(one, sweep, {}), given=True) for one in beside))


def _point(result: PointResult, sweep: FinishedSweep, prices: Mapping[str, Any]) -> TradeoffPoint:
    asked = result.point.values[0][1]
    found = {row["attack"]: row for row in read_attacks(sweep.folder / result.entries[0].path)}
    epsilon = None if asked in (None, "none") else float(asked)
    return TradeoffPoint(result, epsilon, found, prices.get(result.point.name))


def _at(run: SweepRun, level: str) -> SweepRun:
    """Return a run at a level."""
    return run if run.summary is None else replace(run, summary=run.summary | {"level": level})
