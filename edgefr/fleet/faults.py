"""One line for the user from what pydantic says: file, line, field, what is wrong and how to mend it."""

import types
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from edgefr.fleet.document import Document
from privacy.errors import unknown

Location = tuple[str | int, ...]


def describe(
    error: ValidationError, model: type[BaseModel], document: Document, overrides: dict[str, Any]
) -> str:
    """The first fault and how many more there are; a misspelt key comes before what it leaves out."""
    faults = [(_location(e), e) for e in error.errors(include_url=False)]
    faults.sort(key=lambda fault: (fault[1]["type"] != "extra_forbidden", document.line(fault[0])))
    location, first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    field = ".".join(str(part) for part in location) or "the file"
    where = _where(document.path, document, location, overrides)
    return f"{where}: {field}: {_what(first, location, model)}{more}"


def _location(error: Any) -> Location:
    return tuple(error["loc"]) + tuple(error.get("ctx", {}).get("at", ()))


def _where(path: Path, document: Document, location: Location, overrides: dict[str, Any]) -> str:
    """``FILE:LINE``, or that an override set it and no line of the file did."""
    node: Any = overrides
    for part in location:
        if not isinstance(node, dict) or part not in node:
            break
        node = node[part]
    else:
        return f"{path} (set by an override)"
    return f"{path}:{document.line(location)}"


def _what(error: Any, location: Location, model: type[BaseModel]) -> str:
    """The message of one fault."""
    if error["type"] == "missing":
        return "is missing; add it"
    if error["type"] == "extra_forbidden":
        return str(unknown("key", str(location[-1]), _fields_at(model, location[:-1])))
    if "problem" in error.get("ctx", {}):
        return str(error["ctx"]["problem"])
    given = repr(error["input"])
    message = error["msg"].replace("Input should", "it should").replace("a valid dictionary", "a mapping")
    message = message.replace(" or instance of " + str(error.get("ctx", {}).get("class_name")), "")
    return f"{message[0].lower()}{message[1:]}; got {given if len(given) <= 60 else given[:57] + '...'}"


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    """The keys that the schema knows at a location."""
    here: Any = model
    for part in location:
        if isinstance(here, type) and issubclass(here, BaseModel):
            names = {field.alias or name: field.annotation for name, field in here.model_fields.items()}
            here = _inner(names.get(str(part)))
        else:
            here = _inner((typing.get_args(here) or (None,))[-1])
    if isinstance(here, type) and issubclass(here, BaseModel):
        return [field.alias or name for name, field in here.model_fields.items()]
    return []


def _inner(annotation: Any) -> Any:
    """An annotation without `Annotated` and without `None`."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _inner(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return _inner(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation
