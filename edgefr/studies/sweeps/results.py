"""The results of a sweep are read from the summaries of its runs: test metrics, references, epsilons; or a failure."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.metrics.continual import MASKS
from edgefr.metrics.settings import CEILINGS
from edgefr.report.pages import Spread
from edgefr.report.verdict import Verdict, Worth, verdicts
from edgefr.simulation.runs.run import Run
from edgefr.studies.sweeps.grid import Point
from edgefr.studies.sweeps.plan import RECORD
from edgefr.studies.sweeps.search import Trial
from privacy.errors import InputError

RUNS = "runs.csv"

EPSILONS = {"nominal": "eps_nominal", "guaranteed": "eps_guaranteed", "hypothetical": "eps_hypothetical"}
"""The kinds of epsilon that a run knows, never mixed, and their keys in its summary."""

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
    """A point has finished runs, which differ in their seed; `failed`: how many others there are."""

    point: Point
    entries: tuple[SweepRun, ...]
    failed: int

    def summaries(self) -> list[dict[str, Any]]:
        """Of the finished runs, in the order of their seeds."""
        return [entry.summary for entry in self.entries if entry.summary is not None]

    def metric(self, name: str) -> list[float]:
        """Return a test metric of each run; NaN where it has none of that name."""
        return [float(summary["metrics"].get(name, math.nan)) for summary in self.summaries()]

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


def results(entries: Sequence[SweepRun]) -> list[PointResult]:
    """Return the runs by point, in the order they come."""
    grouped: dict[str, list[SweepRun]] = {}
    for entry in entries:
        grouped.setdefault(entry.point.name, []).append(entry)
    return [
        PointResult(own[0].point, tuple(e for e in own if e.summary is not None), sum(e.summary is None for e in own))
        for own in grouped.values()
    ]


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
    summary = Run(folder / path).summary if problem is None else None
    return SweepRun(point, int(row["seed"]), trial, path, summary, problem)


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
