"""The plan of a trade-off has a grid of epsilons, and at each what is searched with the same number of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgefr.experiment.experiment import Change, Experiment
from edgefr.studies.jobs import HERE, Where
from edgefr.studies.sweeps.grid import Axis, Point, canonical, product
from edgefr.studies.sweeps.plan import Search, SweepPlan
from edgefr.studies.tuning.private import LEVELS, at_epsilon, level_of, private_space, section_of
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.run import Tuning
from edgefr.studies.tuning.space import CLIP, RATE, STEP, Base, Space
from privacy.errors import InputError
from privacy.progress import Progress

EPSILONS = (1.0, 2.0, 4.0, 8.0, math.inf, None)
"""At infinity clients clip without noise; None: they do not clip either."""
NAME, TRIALS, SEARCHED = "privacy", 12, 1000
"""The name of all experiments; trials at every epsilon; the seed of all searches, or the one after those of results."""


class TradeoffPlan(SweepPlan):
    """This is the plan of a sweep over epsilons, each tuned with `trials` of its own on validation items alone.

    Where the experiment itself has a clip, `as_given` are points at which its own settings are tried, beside what was
    found. Raises `InputError` for what any trial or run would be refused for.
    """

    def __init__(
        self,
        trials: int | None = None,
        seeds: int = 1,
        base: Path | Experiment | None = None,
        changes: Sequence[str] = (),
        named: Mapping[str, Any] | None = None,
        devices: Path = Path("devices.yaml"),
    ):
        values = {field: value for field, value in (named or {}).items() if value is not None}
        data, self._seed = values.pop("data", None), values.pop("seed", 0)
        every = [*changes, *(f"{field}={canonical(value)}" for field, value in values.items())]
        parsed = [Change.parse(text) for text in every]
        section, own = section_of(base, parsed), section_of(base)
        self.level = level_of(section)
        self.epsilon = f"{LEVELS[self.level]}.epsilon"
        if taken := [one.source for one in parsed if one.field == self.epsilon]:
            raise InputError(f"{taken[0]}: --privacy plans its own {self.epsilon}; omit it")
        self.rules = Rules(trials or TRIALS)
        self._clipped = Base(base, tuple(every), self.rules.laid, data)
        clipped = [one.field.split(".")[0] == "privacy" or one.value == "auto" for one in parsed]  # needs a clip
        plain = [text for text, needs in zip(every, clipped, strict=True) if not needs]
        self._plain, self.spaces = replace(self._clipped, changes=tuple(plain)), dict[str, Space]()
        grid = [Axis(self.epsilon, EPSILONS)]
        for point in product(grid):
            wanted = at_epsilon(section, point.values[0][1]) if self.clips(point) else {}
            space = Space(point.name, {"name": NAME}, (), origin=point.title())
            self.spaces[point.name] = private_space(self._base(point), space, wanted)
        super().__init__(grid, seeds, base, changes, named, devices, Search(self.rules.trials, ()))
        self.objectives = {}
        given = (own.get("examples") or {}).get("clip", own.get("clip"))
        self.as_given = [point for point in self.points if self.clips(point)] if given else []
        first = SEARCHED if SEARCHED not in self.seeds else self.seeds.stop
        self.rules = replace(self.rules, seeds=(first,), reported=tuple(self.seeds))
        for tuning in self.tunings(Path()):
            tuning.check()

    @property
    def runs(self) -> int:
        """Count the runs; trials are told apart."""
        return (len(self.points) + len(self.as_given)) * len(self.seeds)

    def clips(self, point: Point) -> bool:
        """Say whether clients clip at a point."""
        return point.values[0][1] is not None

    def tunings(
        self, folder: Path, data_dir: Path | None = None, where: Where = HERE, progress: Progress | None = None
    ) -> list[Tuning]:
        """Return the searches of points with a clip, and of those without, which have other changes."""
        common: Any = (self.rules, self.fleets, data_dir, where, progress)
        found = {"tuning": self._clipped, "tuning-not-private": self._plain}
        spaces = {
            name: [self.spaces[p.name] for p in self.points if self._base(p) is base] for name, base in found.items()
        }
        return [Tuning(folder / name, base, spaces[name], *common) for name, base in found.items()]

    def record(self) -> dict[str, Any]:
        """Return what makes it this sweep and no other, as JSON."""
        ranges = {r.field: r for space in self.spaces.values() for r in space.ranges}
        if (step := ranges.pop(STEP, None)) is not None:
            clip = ranges[CLIP]
            ranges[RATE] = replace(step, field=RATE, low=step.low / clip.high, high=step.high / clip.low)
        search = {"trials": self.rules.trials, "objectives": {}, "seed": self.rules.seeds[0]}
        search["space"] = {field: [r.scale, r.low, r.high] for field, r in ranges.items()}
        return super().record() | {"search": search, "privacy": self.level, "as_given": bool(self.as_given)}

    def _base(self, point: Point) -> Base:
        return self._clipped if self.clips(point) else self._plain

    def _load(self, point: Point, chosen: Mapping[str, Any] | None) -> Experiment:
        return self._base(point).of(self.spaces[point.name], chosen or {}, self._seed)
