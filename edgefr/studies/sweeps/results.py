"""The results of a sweep are read from the summaries of its runs: metrics, references, epsilons; or a failure.

Metrics are those of full ranking, where a run has it. Of points that differ in settings alone, the best on validation
items is chosen, and only that one is tested.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from edgefr.metrics.continual import MASKS
from edgefr.metrics.cutoffs import main_first
from edgefr.metrics.settings import CEILINGS
from edgefr.report.pages import Spread
from edgefr.report.verdict import FULL, Verdict, Worth, ranking_of, verdicts
from edgefr.simulation.runs.run import Run
from edgefr.studies.sweeps.grid import Point
from edgefr.studies.sweeps.plan import RECORD
from edgefr.studies.sweeps.search import Trial
from privacy.errors import InputError

RUNS = "runs.csv"

EPSILONS = {"nominal": "eps_nominal", "guaranteed": "eps_guaranteed", "hypothetical": "eps_hypothetical"}
"""The kinds of epsilon that a run knows, never mixed, and their keys in its summary."""

SETTINGS = (
    *("rounds", "local_epochs", "clients_per_round", "batch_size", "negatives", "privacy.clip"),
    *("model", "aggregation", "knowledge", "continual", "encoder"),
)
"""Fields whose values are chosen. Any other field asks a question, and each of its values gets an answer of its own."""

USER, INTERACTION = "user level", "interaction level"
"""Whom a guarantee is about: a person with all that it did, or one interaction. Their epsilons are never compared."""


@dataclass(frozen=True)
class SweepRun:
    """This is a run that ended: its `summary`, or the `problem` that ended it. `path`: below the sweep's folder."""

    point: Point
    seed: int
    trial: Trial | None
    path: Path
    summary: dict[str, Any] | None
    problem: str | None = None

    @property
    def number(self) -> int:
        """Return the number of its trial, -1 where nothing is searched."""
        return -1 if self.trial is None else self.trial.number

    @property
    def chosen(self) -> dict[str, Any]:
        """Return what a search put into the experiment."""
        return {} if self.trial is None else self.trial.values


@dataclass(frozen=True)
class PointResult:
    """A point has finished runs, which differ in their seed; `failed`: how many others there are.

    `chosen`: no other point that differs in `SETTINGS` alone was better on validation items, so this one is tested.
    """

    point: Point
    entries: tuple[SweepRun, ...]
    failed: int
    chosen: bool = True

    def summaries(self) -> list[dict[str, Any]]:
        """Of the finished runs, in the order of their seeds."""
        return [entry.summary for entry in self.entries if entry.summary is not None]

    def metric(self, name: str) -> list[float]:
        """Return a test metric of each run; NaN where it has none of that name."""
        return [float(summary["metrics"].get(name, math.nan)) for summary in self.summaries()]

    def validated(self, metric: str | None = None) -> Spread:
        """Return a metric on validation items over the runs; none: the main one of each."""
        return Spread.of([validation(s, metric or main_metric(s["metrics"])) for s in self.summaries()])

    @property
    def question(self) -> str:
        """Return what the point is about: its values but settings, and at which level something is guaranteed."""
        values = [one for one in self.point.values if not _is_setting(one[0])]
        return repr((values, [level_of(summary) for summary in self.summaries()[:1]]))

    def epsilon(self, kind: str) -> float:
        """Return the largest over the runs: it holds for each of them. NaN where a run does not know."""
        values = [epsilon_of(summary, kind) for summary in self.summaries()]
        return math.nan if not values or any(map(math.isnan, values)) else max(values)

    def verdicts(self) -> list[Verdict]:
        """Return what each run came to on the split that counts; a run without a comparison has none."""
        return [one for s in self.summaries() if s.get("learning") for one in verdicts(s)[:1]]

    @property
    def helped(self) -> int:
        """Count the runs in which learning helped, by the verdict of each on the split that counts."""
        return sum(one.worth is Worth.HELPED for one in self.verdicts())

    @property
    def usable(self) -> bool:
        """Say whether learning helped in every run: the one rule by which a sweep calls a point usable."""
        return 0 < len(self.entries) == self.helped

    def best_reference(self, metric: str) -> tuple[str, float] | None:
        """Return the name and the mean utility of the best that needs no learning; None where there is none."""
        return max(mean_references(self.summaries(), metric).items(), key=lambda one: one[1], default=None)


def results(entries: Sequence[SweepRun], objectives: Mapping[str, str] | None = None) -> list[PointResult]:
    """Return the runs by point, in the order they come, with what was chosen on validation items.

    `objectives`: the validation metric of a point, by its name (none: its main metric). Of equals the first is chosen.
    Where no point has validation items, none is left out.
    """
    grouped: dict[str, list[SweepRun]] = {}
    for entry in entries:
        grouped.setdefault(entry.point.name, []).append(entry)
    found = [
        PointResult(own[0].point, tuple(e for e in own if e.summary is not None), sum(e.summary is None for e in own))
        for own in grouped.values()
    ]
    passed = set[str]()
    for rivals in _rivals(found):
        worth = {one.point.name: one.validated((objectives or {}).get(one.point.name)).mean for one in rivals}
        known = [name for name, mean in worth.items() if not math.isnan(mean)]
        passed |= set(worth) - {max(known, key=worth.__getitem__)} if known else set()
    return [replace(one, chosen=one.point.name not in passed) for one in found]


def _rivals(found: Sequence[PointResult]) -> list[list[PointResult]]:
    """Return the finished points that ask one question, where settings do not change what is guaranteed either.

    Epsilons within a twentieth of the next one are one guarantee: calibration meets a budget no closer.
    """
    asked: dict[tuple[str, int], list[PointResult]] = {}
    last, number = -math.inf, 0
    ended = [one for one in found if one.entries]
    for one in sorted(ended, key=lambda one: _no_nan(one.epsilon("guaranteed"))):
        epsilon = _no_nan(one.epsilon("guaranteed"))
        number += epsilon > 1.05 * last
        last = epsilon
        asked.setdefault((one.question, number), []).append(one)
    order = {one.point.name: at for at, one in enumerate(found)}
    return [sorted(own, key=lambda one: order[one.point.name]) for own in asked.values()]


def _no_nan(epsilon: float) -> float:
    return math.inf if math.isnan(epsilon) else epsilon


def _is_setting(field: str) -> bool:
    return any(field == name or field.startswith(f"{name}.") for name in SETTINGS)


@dataclass(frozen=True)
class FinishedSweep:
    """This is a sweep that ended: the `record` of its command, its runs; `speaking`: those that count for a point."""

    folder: Path
    record: Mapping[str, Any]
    entries: tuple[SweepRun, ...]
    speaking: tuple[SweepRun, ...]

    @property
    def failures(self) -> dict[str, str]:
        """Return why runs failed, by their folder."""
        return {str(entry.path): entry.problem for entry in self.entries if entry.problem is not None}

    @property
    def objectives(self) -> Mapping[str, str]:
        """Return the validation metric that a search compared, by the name of its point."""
        found: Mapping[str, str] = (self.record["search"] or {}).get("objectives", {})
        return found

    @cached_property
    def results(self) -> list[PointResult]:
        """Return what counts for each point."""
        return results(self.speaking, self.objectives)

    @cached_property
    def tested(self) -> set[Path]:
        """Return the folders of the runs whose test metrics are shown: of chosen points, and of what was not tuned."""
        given = [] if self.record["search"] is None else [e for e in self.entries if e.trial is None]
        return {e.path for one in (*self.results, *results(given)) if one.chosen for e in one.entries}

    @classmethod
    def read(cls, folder: Path) -> FinishedSweep:
        """Read what a sweep left in its folder. Raises `InputError` where something is missing or damaged."""
        if not (folder / RUNS).is_file():
            raise InputError(f"the sweep in {folder} did not end (no {RUNS}); continue it with --resume {folder}")
        record = RECORD.read(folder)
        try:
            with open(folder / RUNS, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            found = [(_run_of(folder, record, row), row.get("best", "True") == "True") for row in rows]
        except InputError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"cannot read the sweep in {folder}: {error}; run it again with another --out") from None
        return cls(folder, record, tuple(e for e, _ in found), tuple(e for e, best in found if best))


def _run_of(folder: Path, record: Mapping[str, Any], row: Mapping[str, str]) -> SweepRun:
    point = Point.of([(field, row[field]) for field in record["grid"]])
    chosen = {field: float(row[field]) for field in (record["search"] or {"space": {}})["space"] if row.get(field)}
    trial = Trial(int(row["trial"]), chosen) if row.get("trial", "-1") != "-1" else None
    path = Path(row["folder"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{RUNS} names a folder outside the sweep's")
    problem = row["problem"] or None
    summary = in_full(Run(folder / path).summary) if problem is None else None
    return SweepRun(point, int(row["seed"]), trial, path, summary, problem)


def in_full(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary whose metrics and references are those of full ranking, where it has that.

    `validated`: how its validation items were ranked.
    """
    found, full = {"validated": ranking_of(summary), **summary}, summary.get("metrics_full_ranking")
    if full:
        split, ranked = summary["split"], summary["full_ranking"]
        names = [name for name in summary["references"].get(split, {}) if name in ranked[split]]
        references = {split: {name: ranked[split][name] for name in names}}
        found |= {"metrics": full, "references": references, "ranked": FULL}
    return found


def main_metric(names: Sequence[str]) -> str:
    """Return the metric that stands for utility where nobody names one.

    >>> main_metric(["HR@10", "NDCG@10", "NDCG@20"])
    'NDCG@10'
    """
    return main_first(names)[0]


def epsilon_of(summary: Mapping[str, Any], kind: str) -> float:
    """Return one of the run's epsilons: "inf" is infinity, None (nobody can say) NaN.

    >>> epsilon_of({"privacy": {"eps_nominal": "inf"}}, "nominal")
    inf
    """
    told = summary["privacy"]
    if level_of(summary) == INTERACTION:
        told = told.get("examples") or told
    value = told.get(EPSILONS[kind])
    return math.nan if value is None else float(value)


def level_of(summary: Mapping[str, Any]) -> str:
    """Return the level of a run: that of interactions for DP-SGD where updates are neither clipped nor noised.

    >>> level_of({"privacy": {"examples": {"eps_guaranteed": 8.0}, "clip": {"bound": None}}})
    'interaction level'
    """
    told = summary["privacy"]
    bare = (told.get("clip") or {}).get("bound") is None and (told.get("noise") or {}).get(
        "mechanism", "none"
    ) == "none"
    found: str = summary.get("level", INTERACTION if told.get("examples") and bare else USER)
    return found


def references(summary: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return {name: {metric: value}} of what needs no learning, on the items of the run's metrics."""
    if "continual" in summary:
        found = {name: masks[MASKS[0]] for name, masks in summary["references"].items()}
    else:
        found = summary["references"][summary["split"]]
    return {name: values for name, values in found.items() if name not in CEILINGS}


def mean_references(summaries: Sequence[dict[str, Any]], metric: str) -> dict[str, float]:
    """Return the mean of a metric over runs for what needs no learning, by name, where it was measured."""
    found: dict[str, list[float]] = {}
    for summary in summaries:
        for name, values in references(summary).items():
            found.setdefault(name, []).append(float(values.get(metric, math.nan)))
    means = {name: Spread.of(values).mean for name, values in found.items()}
    return {name: value for name, value in means.items() if not math.isnan(value)}


def validation(summary: dict[str, Any], metric: str) -> float:
    """Return a metric of the run's final model on validation items, in blocks the mean over the increments; NaN: none.

    Across domains a metric is of the target, and `source NDCG@10` of the source.

    >>> found = {"main": {"federated": {"HR@10": 0.5}}}
    >>> validation({"split": "main", "stage": "federated", "validation": found}, "HR@10")
    0.5
    """
    if "continual" in summary:
        found = [block["validation"] for block in summary["blocks"][1:] or summary["blocks"]]
        return math.nan if None in found else math.fsum(found) / len(found)
    split, _, name = metric.rpartition(" ")
    stages = summary["validation"].get(split or summary["split"], {})
    return float(stages.get(summary["stage"], {}).get(name, math.nan))
