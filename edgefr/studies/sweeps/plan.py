"""The plan of a sweep has all its experiments, checked as a whole before anything runs, and tells its folder again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.config.executors import WHO_WORKS
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.metrics.cutoffs import of_ranks
from edgefr.studies.campaign import Fleets, RecordFile, digest, occupied
from edgefr.studies.sweeps.grid import Axis, Point, Range, apart, product, shown
from privacy.errors import InputError, unknown
from privacy.files import write_json

RECORD = RecordFile("sweep.json", "edgefr.sweep/1", "run the sweep again with another --out")
COMPARED = {"grid": "--grid", "seeds": "seeds", "search": "search", "experiments": "experiment", "fleet": "fleet"}
"""What of a record makes it another sweep, by what a refusal calls it."""


@dataclass(frozen=True)
class Search:
    """`trials` per point of the grid, each a choice from `ranges`; `objective`: a validation metric (none: NDCG)."""

    trials: int
    ranges: tuple[Range, ...]
    objective: str | None = None


class SweepPlan:
    """The plan of a sweep is a command whose every experiment is valid. `points`: of the grid; `seeds`: in order.

    `changes`: `key=value` of `--set`; `named`: options that are fields, None where not given. Raises `InputError` for
    what any of its runs would be refused for: fields, values, data sets, fleets, seeds.

    >>> plan = SweepPlan([Axis("rounds", (1, 2))], seeds=2, changes=["method=fedmf"])
    >>> len(plan.points), list(plan.seeds), plan.experiment(plan.points[1], 1).rounds
    (2, [0, 1], 2)
    """

    def __init__(
        self,
        axes: Sequence[Axis] = (),
        seeds: int = 1,
        base: Path | Experiment | None = None,
        changes: Sequence[str] = (),
        named: Mapping[str, Any] | None = None,
        devices: Path = Path("devices.yaml"),
        search: Search | None = None,
    ):
        self.axes, self.base, self.changes, self.named, self.search = axes, base, changes, named or {}, search
        ranges = search.ranges if search is not None else ()
        apart([r.field for r in ranges], "--search-space")
        apart([*(axis.field for axis in axes), *(r.field for r in ranges)], "--grid and --search-space")
        self.points, self.fleets = product(axes), Fleets(devices)
        ends = [{r.field: r.ends[end] for r in ranges} for end in range(2 if ranges else 1)]
        found = [[self._load(point, chosen) for chosen in ends] for point in self.points]
        self.fleets.check([experiment for pair in found for experiment in pair])
        self._first = {point.name: pair[0] for point, pair in zip(self.points, found, strict=True)}
        seen: dict[str, Point] = {}
        for point in self.points:  # two that are one experiment would be shown as if they could differ
            twin = seen.setdefault(_deciding(self._first[point.name]), point)
            if twin is not point:
                raise InputError(f"--grid: '{twin.title()}' and '{point.title()}' are the same experiment; keep one")
        first = found[0][0].seed
        if first + seeds > 2**31:
            raise InputError(f"seeds end at {2**31 - 1}, and {seeds} from {first} go beyond; use a smaller --seed")
        self.seeds, self.name = range(first, first + seeds), found[0][0].name
        self.objectives = {} if search is None else self._objectives(search.objective)

    def experiment(self, point: Point, seed: int, chosen: Mapping[str, Any] | None = None) -> Experiment:
        """Return the experiment of a run; `chosen`: what a search puts into its fields."""
        loaded = self._load(point, chosen) if chosen else self._first[point.name]
        return loaded.model_copy(update={"seed": seed})

    def check_metric(self, metric: str | None) -> None:
        """Raises `InputError` for a test metric that no run would have."""
        evaluations = [experiment.evaluation for experiment in self._first.values()]
        known = _known([name for one in evaluations for name in one.metrics], [k for one in evaluations for k in one.k])
        if metric is not None and metric not in known:
            raise unknown("metric", metric, known)

    @property
    def runs(self) -> int:
        """Count the runs: a search takes one seed per trial, and the others for what it chose."""
        each = len(self.seeds) + (self.search.trials - 1 if self.search is not None else 0)
        return len(self.points) * each

    def record(self) -> dict[str, Any]:
        """Return what makes it this sweep and no other, as JSON."""
        search = self.search and {
            "trials": self.search.trials,
            "space": {r.field: [r.scale, r.low, r.high] for r in self.search.ranges},
            "objectives": self.objectives,
        }
        return {
            "schema": RECORD.schema,
            "grid": {axis.field: [shown(value) for value in axis.values] for axis in self.axes},
            "set": list(self.changes),
            "options": {name: str(value) for name, value in self.named.items() if value is not None and name != "seed"},
            "seeds": list(self.seeds),
            "search": search,
            "experiment": None if self.base is None else self.base.name,
            "experiments": digest(*map(_deciding, self._first.values())),
            "fleet": digest(*(fleet.model_dump_json(by_alias=True) for fleet in self.fleets.read.values())),
        }

    def begin(self, folder: Path) -> None:
        """Make the folder of a new sweep. Raises `InputError` where there is one already."""
        if occupied(folder):
            there = (folder / RECORD.name).is_file()
            what = f"a sweep; continue it with --resume {folder}" if there else "other files"
            raise InputError(f"{folder} already holds {what}, or choose another --out (nothing was changed)")
        write_json(folder / RECORD.name, self.record())

    def recognise(self, folder: Path) -> None:
        """Check that `folder` holds a sweep of the same command. Raises `InputError`, saying what differs."""
        if not (folder / RECORD.name).is_file():
            raise InputError(f"{folder} holds no sweep to continue (no {RECORD.name}); start it with --out {folder}")
        other = RECORD.difference(folder, self.record(), COMPARED)
        if other is not None:
            raise InputError(
                f"{folder} was begun by another command: its {other[0]} differs; give that one, or another --out"
            )

    def _load(self, point: Point, chosen: Mapping[str, Any] | None) -> Experiment:
        changes: list[str | Change] = list(self.changes)
        changes += [Change(field, value, f"--grid {field}={shown(value)}") for field, value in point.values]
        changes += [Change(f, value, f"--search-space {f}={shown(value)}") for f, value in (chosen or {}).items()]
        return load_experiment(self.base, changes, **self.named)

    def _objectives(self, wanted: str | None) -> dict[str, str]:
        """Return what a search compares, by point. Raises `InputError` for a metric that a run would not have."""
        out = {}
        for name, experiment in self._first.items():
            known = _known(experiment.evaluation.metrics, experiment.evaluation.k)
            known = known[:1] if experiment.protocol.entry.validates_once else known
            if experiment.protocol.name == "cross-domain":
                known += [f"source {metric}" for metric in known]
            if wanted is not None and wanted not in known:
                raise unknown("validation metric", wanted, known)
            out[name] = wanted or known[0]
        return out


def _known(metrics: Sequence[str], cutoffs: Sequence[int]) -> list[str]:
    kinds = sorted(of_ranks(metrics), key=lambda name: name != "NDCG")
    return [f"{kind}@{k}" for kind in kinds for k in dict.fromkeys(cutoffs)]


def _deciding(experiment: Experiment) -> str:
    values = experiment.model_dump()
    values["engine"] = {k: v for k, v in values["engine"].items() if k not in WHO_WORKS}
    return repr(values)
