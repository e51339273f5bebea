"""A plan is what a sweep was asked for, checked as a whole before anything runs, and how it is recognised again.

Owns: the experiments of all points and seeds, and `sweep.json`. Does not own: running them (`run`), choosing values
(`search`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.config.executors import WHO_WORKS
from edgefr.data import datasets as data
from edgefr.engine.device import torch_device
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.metrics.cutoffs import of_ranks
from edgefr.simulation.simulate import fleet_overrides
from edgefr.studies.sweeps.grid import Axis, Point, apart, product, shown
from edgefr.studies.sweeps.space import Range
from privacy.errors import InputError, unknown
from privacy.files import write_json

RECORD = "sweep.json"
SCHEMA = "edgefr.sweep/1"


@dataclass(frozen=True)
class Search:
    """`trials` per point of the grid, each a choice from `ranges`; `objective`: a validation metric (none: NDCG)."""

    trials: int
    ranges: tuple[Range, ...]
    objective: str | None = None


@dataclass(frozen=True)
class Ask:
    """This is one command.

    `changes`: `key=value` of `--set`; `named`: options that are fields, None where not given.
    """

    axes: tuple[Axis, ...] = ()
    seeds: int = 1
    experiment: Path | Experiment | None = None
    changes: tuple[str, ...] = ()
    named: Mapping[str, Any] | None = None
    devices: Path = Path("devices.yaml")
    search: Search | None = None


class Plan:
    """A plan is a command whose every experiment is valid. `points`: of the grid; `seeds`: in their order.

    Raises `InputError` for what any of its runs would be refused for: fields, values, data sets, fleets, seeds.

    >>> plan = Plan(Ask((Axis("rounds", (1, 2)),), seeds=2, changes=("method=fedmf",)))
    >>> len(plan.points), list(plan.seeds), plan.experiment(plan.points[1], 1).rounds
    (2, [0, 1], 2)
    """

    def __init__(self, ask: Ask):
        self.ask = ask
        ranges = ask.search.ranges if ask.search is not None else ()
        apart([r.field for r in ranges], "--search-space")
        apart([*(axis.field for axis in ask.axes), *(r.field for r in ranges)], "--grid and --search-space")
        self.points = product(ask.axes)
        self._fleets: dict[str, FleetFile] = {}
        ends = [{r.field: r.ends[end] for r in ranges} for end in range(2 if ranges else 1)]
        found = [[self._load(point, chosen) for chosen in ends] for point in self.points]
        self._check([experiment for pair in found for experiment in pair])
        self._different([pair[0] for pair in found])
        self._first = {point.name: pair[0] for point, pair in zip(self.points, found, strict=True)}
        seed = found[0][0].seed
        if seed + ask.seeds > 2**31:
            raise InputError(f"seeds end at {2**31 - 1}, and {ask.seeds} from {seed} go beyond; use a smaller --seed")
        self.seeds = range(seed, seed + ask.seeds)
        self.objectives = self._objectives()

    def experiment(self, point: Point, seed: int, chosen: Mapping[str, Any] | None = None) -> Experiment:
        """Return the experiment of a run; `chosen`: what a search puts into its fields."""
        loaded = self._load(point, chosen) if chosen else self._first[point.name]
        return loaded.model_copy(update={"seed": seed})

    def fleet(self, experiment: Experiment) -> FleetFile:
        """Return the devices of a run."""
        overrides = fleet_overrides(experiment)
        key = repr(overrides)
        if key not in self._fleets:
            self._fleets[key] = load_fleet(self.ask.devices, overrides)
        return self._fleets[key]

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return next(iter(self._first.values())).name

    def check_metric(self, metric: str | None) -> None:
        """Raises `InputError` for a test metric that no run would have."""
        cutoffs = dict.fromkeys(k for experiment in self._first.values() for k in experiment.evaluation.k)
        named = [name for experiment in self._first.values() for name in experiment.evaluation.metrics]
        known = [f"{kind}@{k}" for kind in _metrics(named) for k in cutoffs]
        if metric is not None and metric not in known:
            raise unknown("metric", metric, known)

    @property
    def runs(self) -> int:
        """Count the runs it comes to: a search takes one seed per trial, and the others for what it chose."""
        each = self.ask.seeds + (self.ask.search.trials - 1 if self.ask.search is not None else 0)
        return len(self.points) * each

    def record(self) -> dict[str, Any]:
        """Return what makes it this sweep and no other, as JSON."""
        search = self.ask.search
        experiments = [_deciding(experiment) for experiment in self._first.values()]
        return {
            "schema": SCHEMA,
            "grid": {axis.field: [shown(value) for value in axis.values] for axis in self.ask.axes},
            "set": list(self.ask.changes),
            "seeds": list(self.seeds),
            "search": None
            if search is None
            else {
                "trials": search.trials,
                "space": {r.field: [r.scale, r.low, r.high] for r in search.ranges},
                "objectives": self.objectives,
            },
            "experiment": None if self.ask.experiment is None else self.ask.experiment.name,
            "experiments": _digest(experiments),
            "fleet": _digest([fleet.model_dump_json(by_alias=True) for fleet in self._fleets.values()]),
        }

    def _load(self, point: Point, chosen: Mapping[str, Any] | None) -> Experiment:
        changes: list[str | Change] = list(self.ask.changes)
        changes += [Change(field, value, f"--grid {field}={shown(value)}") for field, value in point.values]
        changes += [Change(f, value, f"--search-space {f}={shown(value)}") for f, value in (chosen or {}).items()]
        return load_experiment(self.ask.experiment, changes, **(self.ask.named or {}))

    def _check(self, experiments: Sequence[Experiment]) -> None:
        """Check what the schema of an experiment leaves to others. One message per thing, whichever point names it."""
        seen = set()
        for experiment in experiments:
            key = repr((experiment.data, experiment.data_options, experiment.engine.device))
            if key not in seen:
                data.check(experiment.data, experiment.data_options)
                torch_device(experiment.engine.device)
                seen.add(key)
            self.fleet(experiment)

    def _different(self, experiments: Sequence[Experiment]) -> None:
        """Two points that are one experiment would be shown as if they could differ."""
        seen: dict[str, Point] = {}
        for point, experiment in zip(self.points, experiments, strict=True):
            twin = seen.setdefault(_deciding(experiment), point)
            if twin is not point:
                raise InputError(f"--grid: '{twin.title()}' and '{point.title()}' are the same experiment; keep one")

    def _objectives(self) -> dict[str, str]:
        """Return what a search compares, by point. Raises `InputError` for a metric that a run would not have."""
        if self.ask.search is None:
            return {}
        wanted, out = self.ask.search.objective, {}
        for name, experiment in self._first.items():
            known = [f"{kind}@{k}" for kind in _metrics(experiment.evaluation.metrics) for k in experiment.evaluation.k]
            known = known[:1] if experiment.protocol.entry.validates_once else known
            if wanted is not None and wanted not in known:
                raise unknown("validation metric", wanted, known)
            out[name] = wanted or known[0]
        return out


def _metrics(named: Sequence[str]) -> list[str]:
    """Return what runs measure, NDCG first: that is compared where nobody says what."""
    return sorted(of_ranks(named), key=lambda name: name != "NDCG")


def begin(plan: Plan, folder: Path) -> None:
    """Make the folder of a new sweep. Raises `InputError` where there is one already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = f"a sweep; go on with it by --resume {folder}" if (folder / RECORD).is_file() else "other files"
        raise InputError(f"{folder} already holds {what}, or choose another --out (nothing was changed)")
    write_json(folder / RECORD, plan.record())


def recognise(plan: Plan, folder: Path) -> None:
    """Check that `folder` holds a sweep of the same command. Raises `InputError`, saying what differs."""
    path = folder / RECORD
    if not path.is_file():
        raise InputError(f"{folder} holds no sweep to go on with (no {RECORD}); start it with --out {folder}")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {kept['schema']}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"cannot read {path}: {error}; run the sweep again with another --out") from None
    asked = json.loads(json.dumps(plan.record()))
    named = {"grid": "--grid", "seeds": "seeds", "search": "search", "experiments": "experiment", "fleet": "fleet"}
    for key, what in named.items():
        if kept.get(key) != asked[key]:
            raise InputError(
                f"{folder} was begun by another command: its {what} differs; give that one, or another --out"
            )


def _deciding(experiment: Experiment) -> str:
    """Return what decides an experiment's result, as text: not who does the work."""
    values = experiment.model_dump()
    values["engine"] = {k: v for k, v in values["engine"].items() if k not in WHO_WORKS}
    return repr(values)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
