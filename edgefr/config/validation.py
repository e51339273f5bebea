"""One line for the user is made of what pydantic says: where, which field, what is wrong and how to mend it."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from privacy.errors import unknown
from privacy.setting_scope import Settings

Location = tuple[str | int, ...]


class Section(Settings):
    """This is a part of an experiment: unknown keys are refused, and such as nothing reads."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)


def fault(problem: str, *at: str | int) -> PydanticCustomError:
    """Make an error that a validator raises: what is wrong with the field at a location, and how to mend it."""
    return PydanticCustomError("experiment", "{problem}", {"problem": problem, "at": at})


def describe(error: ValidationError, schema: type[BaseModel], where: Callable[[Location], str] | None = None) -> str:
    """Write one line: where the first fault is, its field, what to mend.

    Where: ``FILE:LINE`` or an option, as `where` tells.
    """
    location, problem = first_fault(error, schema)
    parts = [where(location)] if where is not None else []
    field = ".".join(str(part) for part in location)
    return ": ".join([*parts, *([field] if field else []), problem])


def first_fault(error: ValidationError, schema: type[BaseModel]) -> tuple[Location, str]:
    """Return where the first fault is, and what it is with how many more there are.

    A misspelt key comes before what it leaves out.
    """
    faults = [(_location(e), e) for e in error.errors(include_url=False)]
    faults.sort(key=lambda fault: fault[1]["type"] != "extra_forbidden")
    location, first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return location, _what(first, location, schema) + more


def _location(error: Any) -> Location:
    """Return where the fault is in the document; pydantic also names the function that found it."""
    real = tuple(part for part in error["loc"] if not (isinstance(part, str) and part.startswith("function")))
    return real + tuple(error.get("ctx", {}).get("at", ()))


def _what(error: Any, location: Location, schema: type[BaseModel]) -> str:
    """Return the message of one fault."""
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
    message = message.replace("a mapping or object to extract fields from", "a mapping")
    message = message.replace(" or instance of " + str(error.get("ctx", {}).get("class_name")), "")
    return f"{message[0].lower()}{message[1:]}; got {given if len(given) <= 60 else given[:57] + '...'}"


def _fields_at(schema: type[BaseModel], location: Location) -> list[str]:
    """Return the keys that the schema knows at a location (those of every member, where it is a union)."""
    models = members_at(schema, location)
    return sorted({field.alias or name for kind in models for name, field in kind.model_fields.items()})


def members_at(schema: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    """Return the models that the schema allows at a location: one, or the members of a union."""
    here: list[Any] = [schema]
    for part in location:
        found: list[Any] = []
        for kind in here:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
                found += members(names.get(str(part)))
            else:
                found += members((typing.get_args(kind) or (None,))[-1])
        here = found
    return [kind for kind in here if isinstance(kind, type) and issubclass(kind, BaseModel)]


def members(annotation: Any) -> list[Any]:
    """Return an annotation without `Annotated` and `None`: one type, or the members of a union."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [m for a in typing.get_args(annotation) if a is not type(None) for m in members(a)]
    return [annotation]
