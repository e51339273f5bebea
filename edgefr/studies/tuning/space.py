"""A space is a file that says what of a method is searched, and between which values.

experiment: {method: fedmf, model.dim: 32}
ranges: {model.lr: 'log(0.1, 10)', model.item_lr: 'log(10, 10000)'}
why: where the ranges come from
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from edgefr.config.documents import Document
from edgefr.config.packaged_files import shipped
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.experiment.unread_settings import unread
from edgefr.studies.campaign import digest
from edgefr.studies.sweeps.grid import Range, apart
from privacy.errors import InputError, unknown

SHIPPED = Path("experiments/spaces")
"""The folder of search spaces where none is named."""
CLIP, RATE, STEP = "privacy.clip", "aggregation.server_lr", "clip x server_lr"
"""A range of `STEP`, which is no field, is one of the rate times the clip: the rate is what a choice leaves of it."""


class SpaceFile(BaseModel):
    """This is the content of a space's file."""

    model_config = ConfigDict(extra="forbid")

    experiment: dict[str, Any] = Field(description="values of the experiment by dotted name, method among them")
    ranges: dict[str, str] = Field(min_length=1, description="what is searched: log(a,b), uniform(a,b) or int(a,b)")
    why: str = Field("", description="where the ranges come from")


@dataclass(frozen=True)
class Space:
    """A space has a `name`, the values it fixes by dotted name, and a range per field that is searched.

    `first`: the values of the first trials; all that follow are chosen. `origin`: what errors call it (none: its file).
    """

    name: str
    fixed: Mapping[str, Any]
    ranges: tuple[Range, ...]
    why: str = ""
    first: tuple[Mapping[str, float], ...] = ()
    origin: str = ""

    @classmethod
    def read(cls, folder: Path, name: str) -> Space:
        """Read `<folder>/<name>.yaml`; where that folder is not there, `SHIPPED` is the one that ships with edgefr.

        Raises `InputError` for a file that is not there or that says something else.
        """
        folder = shipped(SHIPPED) if folder == SHIPPED and not folder.exists() else folder
        path = folder / f"{name}.yaml"
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder} with search spaces; name another --spaces")
        if not path.is_file():
            raise unknown("search space", name, (found.stem for found in folder.glob("*.yaml")))
        found = Document.read(path).validate(SpaceFile)
        ranges = tuple(Range.parse(f"{field}={text}") for field, text in found.ranges.items())
        apart([*found.experiment, *found.ranges], f"{path}")
        return cls(name, found.experiment, ranges, found.why)

    @property
    def source(self) -> str:
        """Return what errors about its values call it."""
        return self.origin or f"{self.name}.yaml"

    def record(self) -> dict[str, Any]:
        """Return what makes it this space and no other, as JSON."""
        ranges = {r.field: [r.scale, r.low, r.high] for r in self.ranges}
        return {"experiment": dict(self.fixed), "ranges": ranges} | ({"first": list(self.first)} if self.first else {})


def fields(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a choice sets.

    >>> fields({"rounds": 20, "privacy.clip": 2.0, "clip x server_lr": 16.0})
    {'rounds': 20, 'privacy.clip': 2.0, 'aggregation.server_lr': 8.0}
    """
    found = {field: value for field, value in chosen.items() if field != STEP}
    return found | ({RATE: chosen[STEP] / chosen.get(CLIP, 1.0)} if STEP in chosen else {})


@dataclass(frozen=True)
class Base:
    """All methods of a tuning have in common an experiment without a method, its `data` set, and values over it.

    `laid` are values that the rules ask for, by dotted name, of which a method is given those that it reads.
    """

    experiment: Path | Experiment | None
    changes: tuple[str, ...]
    laid: Mapping[str, Any]
    data: str | None = None

    def check(self, space: Space) -> None:
        """Raises `InputError` where a value given by hand would be overwritten by the search or its rules."""
        for change in map(Change.parse, self.changes):
            if change.field in {*(r.field for r in space.ranges), *self.laid}:
                whose = "the rules say" if change.field in self.laid else f"{space.source} searches"
                raise InputError(f"{change.source}: {whose} {change.field}, which would be overwritten; omit it")

    @property
    def digest(self) -> str:
        """Return a digest of what the experiment says; a file's comments do not count."""
        given = self.experiment
        return digest(repr(Document.read(given).values if isinstance(given, Path) else given))[:16]

    def of(self, space: Space, chosen: Mapping[str, Any], seed: int) -> Experiment:
        """Return the experiment of a choice from a space. Raises `InputError` for what it would be refused for.

        A central reference reads no `evaluation.keep`: it keeps its best epoch without being asked.
        """
        named = {"name": f"{space.name}-tuned", **space.fixed}
        changes: list[str | Change] = [Change(f, value, f"{space.source}: {f}") for f, value in named.items()]
        changes += self._read(changes)
        changes += [Change(f, value, f"{space.source}: {f}={value:g}") for f, value in fields(chosen).items()]
        for field, value in self.laid.items():
            if tuple(field.split(".")) not in unread(load_experiment(self.experiment, changes, data=self.data)):
                changes.append(Change(field, value, f"the rules of tuning: {field}"))
        return load_experiment(self.experiment, changes, data=self.data, seed=seed)

    def _read(self, method: Sequence[str | Change]) -> list[Change]:
        """Return the changes without those that federated methods alone read, where the method is a central reference.

        So both share a budget. Raises `InputError` for what federated methods would not take either.
        """
        changes = [Change.parse(text) for text in self.changes]
        alone = load_experiment(self.experiment, method, data=self.data)
        if alone.row.central is None:
            return changes
        closed = unread(alone)
        foreign = [c for c in changes if any(tuple(c.field.split("."))[: len(at)] == at for at in closed)]
        federated = Change("method", "fedmf", "a federated method")
        load_experiment(self.experiment, [federated, *foreign], data=self.data)
        return [change for change in changes if change not in foreign]

    def ends(self, space: Space, ranges: Sequence[Range] | None = None) -> list[Experiment]:
        """Return the experiments at the lower and the upper ends of all ranges, for checks before anything runs."""
        return [self.of(space, {r.field: r.ends[end] for r in ranges or space.ranges}, 0) for end in (0, 1)]
