"""Settings belong to one choice among the others: set where nothing would read them, they are refused.

A field says beside its type which value of which field of the same model it is read with. A value that is no other than
the field's default is let through, since it changes nothing: files that name every setting can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from pydantic import AfterValidator, BaseModel, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

from privacy.errors import InputError
from privacy.table import Table


@dataclass(frozen=True, init=False)
class ReadWith:
    """The field is read where `choice` has one of these values."""

    choice: str
    values: tuple[Any, ...]

    def __init__(self, choice: str, *values: Any):
        object.__setattr__(self, "choice", choice)
        object.__setattr__(self, "values", values)

    def holds(self, chosen: Any) -> bool:
        """Say whether the field is read beside this value of the choice."""
        return chosen in self.values

    def reason(self, chosen: Any) -> str:
        """Say whose the setting is, and what is chosen in its place."""
        named = " or ".join(_shown(value) for value in self.values)
        return (
            f"belongs to {self.choice} {named}, and {self.choice} is {_shown(chosen)}: drop it, "
            f"or set {self.choice}={_shown(self.values[0])}"
        )


@dataclass(frozen=True, init=False)
class ReadWithout(ReadWith):
    """The field is read unless `choice` has one of these values."""

    def holds(self, chosen: Any) -> bool:
        return chosen not in self.values

    def reason(self, chosen: Any) -> str:
        """Say why nobody reads the setting."""
        return f"nothing reads it where {self.choice} is {_shown(chosen)}: drop it, or set another {self.choice}"


class Settings(BaseModel):
    """Settings can be read beside certain values of others alone (`ReadWith`, `ReadWithout`).

    >>> from typing import Annotated
    >>> class Noise(Settings):
    ...     law: str = "none"
    ...     scale: Annotated[float, ReadWithout("law", "none")] = 1.0
    >>> unread_fields(Noise())
    {'scale': 'nothing reads it where law is none: drop it, or set another law'}
    """

    @model_validator(mode="after")
    def _nothing_unread(self) -> Self:
        for name, why in unread_fields(self).items():
            if getattr(self, name) != default_of(type(self).model_fields[name]):
                raise PydanticCustomError("unread", "{problem}", {"problem": why, "at": (name,)})
        return self


def unread_fields(model: BaseModel) -> dict[str, str]:
    """Return the fields of a model that nothing reads beside its other values, and why; not of models within it."""
    return unread_values(type(model), {name: getattr(model, name) for name in type(model).model_fields})


def unread_values(schema: type[BaseModel], values: Mapping[str, Any]) -> dict[str, str]:
    """Return `unread_fields` of values that were not checked yet; what they leave out is as by default."""
    out: dict[str, str] = {}
    for name, rule in _rules(schema):
        chosen = values.get(rule.choice, default_of(schema.model_fields[rule.choice]))
        if not rule.holds(chosen):
            out.setdefault(name, rule.reason(chosen))
    return out


@cache
def _rules(schema: type[BaseModel]) -> tuple[tuple[str, ReadWith], ...]:
    """Return which fields are read beside what: most schemas have none, and one is looked through once."""
    named = ((name, part) for name, field in schema.model_fields.items() for part in field.metadata)
    return tuple((name, part) for name, part in named if isinstance(part, ReadWith))


@dataclass(frozen=True)
class EntryName:
    """This checks that a value is the name of an entry of a table, or None where a field allows that."""

    table: Table[Any]

    def __call__(self, name: str | None) -> str | None:
        if name is None:
            return None
        try:
            return str(self.table[name].name)
        except InputError as error:
            raise PydanticCustomError("unknown", "{problem}", {"problem": str(error)}) from None


def named_in(table: Table[Any]) -> AfterValidator:
    """Return what a field is annotated with whose value is the name of an entry.

    Example: ``policy: Annotated[str, named_in(POLICIES)] = "deadline"``
    """
    return AfterValidator(EntryName(table))


def default_of(field: FieldInfo) -> Any:
    """Return what a field is where nobody sets it; a value equal to nothing where it has to be set."""
    found = field.get_default(call_default_factory=True)
    return object() if found is PydanticUndefined else found


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, str | int | float) else "set"
