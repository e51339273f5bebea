"""One line for the user from what pydantic says: where, which field, what is wrong and how to mend it."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from privacy.errors import unknown

Location = tuple[str | int, ...]


def describe(
    error: ValidationError,
    schema: type[BaseModel],
    where: Callable[[Location], str] | None = None,
    prefix: str = "",
) -> str:
    """The first fault and how many more there are; a misspelt key comes before what it leaves out.

    `where` tells a location's origin (``FILE:LINE`` or an option); `prefix` stands before the field's name.
    """
    faults = [(_location(e), e) for e in error.errors(include_url=False)]
    faults.sort(key=lambda fault: fault[1]["type"] != "extra_forbidden")
    location, first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    parts = [where(location)] if where is not None else []
    field = prefix + ".".join(str(part) for part in location)
    return ": ".join([*parts, *([field] if field else []), _what(first, location, schema)]) + more


def _location(error: Any) -> Location:
    """Where the fault is in the document: pydantic also names the member of a union ("leave-one-out"), which is not."""
    real = tuple(p for p in error["loc"] if not (isinstance(p, str) and ("-" in p or p.startswith("function"))))
    return real + tuple(error.get("ctx", {}).get("at", ()))


def _what(error: Any, location: Location, schema: type[BaseModel]) -> str:
    """The message of one fault."""
    if error["type"] == "missing":
        return "is missing; add it"
    if error["type"] == "extra_forbidden":
        return str(unknown("key", str(location[-1]), _fields_at(schema, location[:-1])))
    if "problem" in error.get("ctx", {}):
        return str(error["ctx"]["problem"])
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    given = repr(error["input"])
    message = error["msg"].replace("Input should", "it should").replace("a valid dictionary", "a mapping")
    message = message.replace(" or instance of " + str(error.get("ctx", {}).get("class_name")), "")
    return f"{message[0].lower()}{message[1:]}; got {given if len(given) <= 60 else given[:57] + '...'}"


def _fields_at(schema: type[BaseModel], location: Location) -> list[str]:
    """The keys that the schema knows at a location (those of every member, where it is a union)."""
    here: list[Any] = [schema]
    for part in location:
        found: list[Any] = []
        for kind in here:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
                found += _members(names.get(str(part)))
            else:
                found += _members((typing.get_args(kind) or (None,))[-1])
        here = found
    models = [kind for kind in here if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [field.alias or name for kind in models for name, field in kind.model_fields.items()]


def _members(annotation: Any) -> list[Any]:
    """An annotation without `Annotated` and `None`: one type, or the members of a union."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [m for a in typing.get_args(annotation) if a is not type(None) for m in _members(a)]
    return [annotation]
