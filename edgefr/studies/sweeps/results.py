"""A run of a sweep came to something, read from its summary: test metrics, references, epsilons; or why it failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.metrics.continual import MASKS
from edgefr.report.verdict import Verdict, Worth, verdicts
from edgefr.studies.sweeps.grid import Point
from edgefr.studies.sweeps.search import Trial

EPSILONS = {"nominal": "eps_nominal", "guaranteed": "eps_guaranteed", "hypothetical": "eps_hypothetical"}
"""The kinds of epsilon that a run knows, never mixed, and their keys in its summary."""


@dataclass(frozen=True)
class Entry:
    """A run that ended: `summary`, or the `problem` that ended it. `path`: below the sweep's folder."""

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
class Result:
    """A point and its finished runs, which differ in their seed; `failed`: how many others there are."""

    point: Point
    entries: tuple[Entry, ...]
    failed: int

    def summaries(self) -> list[dict[str, Any]]:
        """Of the finished runs, in the order of their seeds."""
        return [entry.summary for entry in self.entries if entry.summary is not None]

    def metric(self, name: str) -> list[float]:
        """Return a test metric of each run; NaN where it has none of that name."""
        return [float(summary["metrics"].get(name, math.nan)) for summary in self.summaries()]

    def reference(self, name: str, metric: str) -> list[float]:
        """Return a metric of a reference for each run; NaN where it has none of that name."""
        return [float(references(s).get(name, {}).get(metric, math.nan)) for s in self.summaries()]

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
        names = dict.fromkeys(name for summary in self.summaries() for name in references(summary))
        found = {name: [v for v in self.reference(name, metric) if not math.isnan(v)] for name in names}
        known = {name: math.fsum(values) / len(values) for name, values in found.items() if values}
        return max(known.items(), key=lambda one: one[1], default=None)


def results(entries: Sequence[Entry]) -> list[Result]:
    """Return the entries by point, in the order they come."""
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(entry.point.name, []).append(entry)
    return [
        Result(own[0].point, tuple(e for e in own if e.summary is not None), sum(e.summary is None for e in own))
        for own in grouped.values()
    ]


def epsilon_of(summary: Mapping[str, Any], kind: str) -> float:
    """Return one of the run's epsilons: "inf" is infinity, None (nobody can say) NaN.

    >>> epsilon_of({"privacy": {"eps_nominal": "inf"}}, "nominal")
    inf
    """
    value = summary["privacy"].get(EPSILONS[kind])
    return math.nan if value is None else float(value)


def references(summary: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return {name: {metric: value}} of what needs no learning, on the items of the run's metrics."""
    if "continual" in summary:
        return {name: masks[MASKS[0]] for name, masks in summary["references"].items()}
    return dict(summary["references"][summary["split"]])


def validation(summary: dict[str, Any], metric: str) -> float:
    """Return a metric of the run's final model on validation items, in blocks the mean over the increments; NaN: none.

    >>> found = {"main": {"federated": {"HR@10": 0.5}}}
    >>> validation({"split": "main", "stage": "federated", "validation": found}, "HR@10")
    0.5
    """
    if "continual" in summary:
        found = [block["validation"] for block in summary["blocks"][1:] or summary["blocks"]]
        return math.nan if None in found else math.fsum(found) / len(found)
    stages = summary["validation"].get(summary["split"], {})
    return float(stages.get(summary["stage"], {}).get(metric, math.nan))
