"""The plan of a trade-off has a grid of epsilons, and at each what is searched with the same number of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgefr.experiment.experiment import Change, Experiment
from edgefr.studies.jobs import Where
from edgefr.studies.sweeps.grid import Axis, Point, canonical, product
from edgefr.studies.sweeps.plan import Search, SweepPlan
from edgefr.studies.tuning.private import at_epsilon, level_of, private_space, section_of
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.run import Tuning
from edgefr.studies.tuning.space import CLIP, RATE, STEP, Base, Space
from privacy.errors import InputError
from privacy.progress import Progress

EPSILONS = (1.0, 2.0, 4.0, 8.0, math.inf)
NOT_PRIVATE = None
"""The value of epsilon at the point that neither clips nor adds noise."""
NAME = "privacy"
"""The name of all experiments of the sweep."""
TRIALS = 12
SEARCHED = 1000
"""The seed of every search, or the one after those of the results where they hold it."""


class TradeoffPlan(SweepPlan):
    """The plan of a sweep over epsilons, each tuned with `trials` of its own on validation items alone.

    `axes`: further fields, whose points are tuned alike. Where the experiment itself has a clip, `as_given` points are
    its own settings at every epsilon, beside the tuned ones. Raises `InputError` for what any trial or run would be
    refused for.
    """

    def __init__(
        self,
        trials: int | None = None,
        seeds: int = 1,
        base: Path | Experiment | None = None,
        changes: Sequence[str] = (),
        named: Mapping[str, Any] | None = None,
        devices: Path = Path("devices.yaml"),
        axes: Sequence[Axis] = (),
    ):
        values = {field: value for field, value in (named or {}).items() if value is not None}
        data, self._seed = values.pop("data", None), values.pop("seed", None)
        every = [*changes, *(f"{field}={canonical(value)}" for field, value in values.items())]
        parsed = [Change.parse(text) for text in every]
        section = section_of(base, parsed)
        self.level, self.own_clip = level_of(section), _clip(section_of(base))
        self.epsilon = f"{self.level.section}.epsilon"
        if taken := [one for one in parsed if one.field == self.epsilon]:
            raise InputError(f"{taken[0].source}: --privacy plans its own {self.epsilon}; leave it away")
        self.rules = Rules(trials or TRIALS)
        clipped = Base(base, tuple(every), self.rules.laid, data)
        plain = [text for text, one in zip(every, parsed, strict=True) if one.field.split(".")[0] != "privacy"]
        self._plain = replace(clipped, changes=tuple(plain))
        self._clipped, self.spaces = clipped, dict[str, Space]()
        grid = [*axes, Axis(self.epsilon, (*EPSILONS, NOT_PRIVATE))]
        for point in product(grid):
            given = dict(point.values)
            epsilon = given.pop(self.epsilon)
            wanted = {} if epsilon is NOT_PRIVATE else at_epsilon(section, epsilon)
            space = Space(point.name, given | {"name": NAME}, (), origin=point.title())
            self.spaces[point.name] = private_space(self._base(point), space, wanted)
        super().__init__(grid, seeds, base, changes, named, devices, Search(self.rules.trials, ()))
        self.objectives = {}
        first = SEARCHED if SEARCHED not in self.seeds else self.seeds.stop
        self.rules = replace(self.rules, seeds=(first,), reported=tuple(self.seeds))
        for tuning in self.tunings(Path()):
            tuning.check()

    @property
    def as_given(self) -> list[Point]:
        """Return the points at which the experiment's own clip is tried beside what was found."""
        return [point for point in self.points if self.own_clip and self.private(point)]

    @property
    def runs(self) -> int:
        """Count the runs; trials are told apart."""
        return (len(self.points) + len(self.as_given)) * len(self.seeds)

    def private(self, point: Point) -> bool:
        """Say whether clients clip at a point."""
        return dict(point.values)[self.epsilon] is not NOT_PRIVATE

    def tunings(
        self, folder: Path, data_dir: Path | None = None, where: Where | None = None, progress: Progress | None = None
    ) -> list[Tuning]:
        """Return the searches of all points: of those with a clip, and of those without, which have other changes."""
        found = []
        for base, name in ((self._clipped, "tuning"), (self._plain, "tuning-not-private")):
            spaces = [self.spaces[point.name] for point in self.points if self._base(point) is base]
            one = Tuning(folder / name, base, spaces, self.rules, self.fleets, data_dir, where or Where(), progress)
            found.append(one)
        return found

    def record(self) -> dict[str, Any]:
        """Return what makes it this sweep and no other, as JSON."""
        record = super().record()
        space = {r.field: [r.scale, r.low, r.high] for one in self.spaces.values() for r in one.ranges}
        if STEP in space:
            (_, low, high), (_, least, most) = space.pop(STEP), space[CLIP]
            space[RATE] = ["log", low / most, high / least]
        record["search"] = {"trials": self.rules.trials, "space": space, "objectives": {}, "seed": self.rules.seeds[0]}
        return record | {"privacy": self.level.name, "epsilon": self.epsilon, "as_given": bool(self.as_given)}

    def _base(self, point: Point) -> Base:
        return self._clipped if self.private(point) else self._plain

    def _load(self, point: Point, chosen: Mapping[str, Any] | None) -> Experiment:
        space = self.spaces[point.name]
        return self._base(point).of(space, chosen or {}, 0 if self._seed is None else self._seed)


def _clip(section: Mapping[str, Any]) -> float | None:
    own = section if not section.get("examples") else {**section["examples"], **section}
    return own.get("clip")
