"""Every setting of an experiment by its place in the schema, and values that it could be changed to.

The settings are taken from the schema, so a new one is asked about before anybody thought of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from edgefr.data.datasets import READERS
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.fleet.calibration import Calibration
from privacy.setting_scope import EntryName, default_of
from privacy.table import Choice, Table
from tests.contract.values import VALUES

Place = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """One setting: its name, what is set to change it (a list is set as a whole), and the values to change it to.

    `own`: it is a field of what is chosen; else of another entry of the same table.
    """

    name: str
    sets: str
    others: list[Any]
    own: bool = True

    def to(self, others: list[Any]) -> Leaf:
        """Return the same setting, to be changed to these values."""
        return replace(self, others=others)

    def within(self, parts: tuple[str, ...]) -> bool:
        """Whether it is one of these settings, or in one of these sections."""
        return any(self.name == part or self.name.startswith(f"{part}.") for part in parts)


def leaves(experiment: Experiment, fleet: FleetFile) -> list[Leaf]:
    """Return every setting that an experiment can have: of its own, its method's, its reader's and its fleet's."""
    options = READERS[experiment.data].options
    found = [
        *_of(type(experiment), experiment, ()),
        *_of(type(experiment.settings), experiment.settings, ("model",)),
        *_of(options, options.model_validate(experiment.data_options), ("data_options",)),
        *_of(type(fleet.fleet), fleet.fleet, ("fleet",)),
        *_of(type(fleet.rounds), fleet.rounds, ("fleet", "rounds")),
        *_of(type(fleet.cost), fleet.cost, ("fleet", "cost")),
    ]
    found = [leaf for leaf in found if leaf.sets not in ("model", "data_options", "fleet")]
    own = {"backbone": experiment.row.name}  # to name it is to say nothing
    return [leaf.to([value for value in leaf.others if own.get(leaf.name, ()) != value]) for leaf in found]


def _of(schema: type[BaseModel], model: BaseModel, at: Place) -> Iterator[Leaf]:
    for name, field in _fields(schema).items():
        place, value = (*at, name), getattr(model, name, default_of(field))
        dotted = ".".join(place)
        if isinstance(value, BaseModel):
            if type(None) in get_args(field.annotation):
                yield Leaf(dotted, dotted, [None, *VALUES.get(dotted, [])])
            if not isinstance(value, Calibration):  # what was measured is a file, not settings
                yield from _of(type(value), value, place)
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            for part in _of(type(value[0]), value[0], ()):
                first = [value[0].model_dump() | {part.name: other} for other in part.others]
                yield Leaf(f"{dotted}.0.{part.name}", dotted, [[one, *value[1:]] for one in first])
        else:
            own, same = name in schema.model_fields, _defaults(schema, name)
            taken = [other for other in others(dotted, field, value) if own or other not in same]
            yield Leaf(dotted, dotted, taken, own)


def _fields(schema: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of settings; those of every entry, where a table has one's settings here."""
    out = dict(schema.model_fields)
    if issubclass(schema, Choice):
        for entry in schema.table.values():
            out |= {} if entry.settings is None else entry.settings.model_fields
        out[schema.key] = FieldInfo(annotation=Literal[tuple(schema.table)])  # type: ignore[arg-type]
    return out


def _defaults(schema: type[BaseModel], name: str) -> list[Any]:
    """Return what a setting of some entries of a table is by default: to set it so elsewhere changes nothing."""
    entries = schema.table.values() if issubclass(schema, Choice) else ()
    fields = [entry.settings.model_fields for entry in entries if entry.settings is not None]
    return [default_of(of[name]) for of in fields if name in of]


def others(name: str, field: FieldInfo, value: Any) -> list[Any]:
    """Return values that a setting could be changed to, the likeliest to be taken first."""
    if name in VALUES:
        return [other for other in VALUES[name] if other != value]
    if (table := _table(field)) is not None:
        return [other for other in table if other != value]
    for kind in _kinds(field.annotation):
        if get_origin(kind) is Literal:
            return [other for other in get_args(kind) if other != value]
        if kind is bool:
            return [not value]
        if kind is int:
            return [1] if not isinstance(value, int) else [value + 1, value - 1 if value else 2]
        if kind is float:
            return [0.5] if not isinstance(value, int | float) or not value else [value * 0.5, value * 2]
    return []


def _table(field: FieldInfo) -> Table[Any] | None:
    """Return the table that a field's value is a name of (`privacy.setting_scope.named_in`)."""
    for part in field.metadata:
        if isinstance(part, AfterValidator) and isinstance(part.func, EntryName):
            return part.func.table
    return None


def _kinds(annotation: Any) -> list[Any]:
    """Return the plain types of an annotation."""
    if annotation in (bool, int, float, str) or get_origin(annotation) is Literal:
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _kinds(part)]
