"""YAML documents from outside: read safely, kept with their line numbers, validated with errors people can act on."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from privacy.errors import InputError

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[str | int, ...]
LIMIT_BYTES = 1 << 20
LIMIT_NODES = 50_000


class Document:
    """A mapping read from a file, and the line every value stands on.

    >>> document = Document.of({"rounds": 3}, "experiment")
    >>> document.put("fleet.dropout", 0.2, source="--set fleet.dropout=0.2")
    >>> document.values["fleet"]
    {'dropout': 0.2}
    """

    def __init__(self, values: dict[str, Any], origin: str, lines: dict[Location, int]):
        self.values, self.origin, self.lines = values, origin, lines
        self.sources: dict[Location, str] = {}

    @classmethod
    def of(cls, values: dict[str, Any], origin: str) -> Document:
        """A document that is not a file."""
        return cls(values, origin, {})

    @classmethod
    def read(cls, path: str | Path) -> Document:
        """Read a YAML mapping. Raises `InputError` for a missing, binary, empty, oversized or malformed file."""
        path = Path(path)
        try:
            raw = path.read_bytes()[: LIMIT_BYTES + 1]
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        if len(raw) > LIMIT_BYTES:
            raise InputError(f"{path}: larger than {LIMIT_BYTES // 1024} KiB; this is not a configuration file")
        try:
            text = raw.decode("utf-8")
            if "\0" in text:
                raise ValueError
        except ValueError:
            raise InputError(f"{path}: not a text file; expected YAML in UTF-8") from None
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            lines: dict[Location, int] = {}
            _walk(node, (), lines, [0], path)
            values = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise InputError(f"{path}:{line}: not valid YAML: {error.problem or error}") from None
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise InputError(f"{path}: not valid YAML: {str(error).splitlines()[0] if str(error) else 'too deep'}") from None
        if values is None:
            raise InputError(f"{path}: empty; expected YAML keys and values")
        if not isinstance(values, dict):
            raise InputError(f"{path}:1: expected keys and values, found {type(values).__name__}")
        return cls(values, str(path), lines)

    def put(self, dotted: str, value: Any, source: str) -> None:
        """Set one value by its dotted name; sections are made as needed."""
        *sections, last = dotted.split(".")
        at = self.values
        for section in sections:
            inner = at.get(section)
            if inner is None:
                inner = at[section] = {}
            if not isinstance(inner, dict):
                raise InputError(f"{source}: '{section}' is a value, not a section")
            at = inner
        at[last] = value
        self.sources[tuple(dotted.split("."))] = source

    def validate(self, schema: type[Model]) -> Model:
        """The document as `schema`. Raises `InputError` with origin, line, field and what to do."""
        try:
            return schema.model_validate(self.values)
        except ValidationError as error:
            raise InputError(explain(error, document=self, schema=schema)) from None

    def where(self, location: Location) -> str:
        """`file:line` (or the option) that set the value at this location, or the nearest thing above it."""
        for length in range(len(location), -1, -1):
            part = location[:length]
            if part in self.sources:
                return self.sources[part]
            if part in self.lines:
                return f"{self.origin}:{self.lines[part]}"
        return self.origin


def _walk(node: yaml.Node | None, at: Location, lines: dict[Location, int], seen: list[int], path: Path) -> None:
    """Note the line of every key and list entry; refuse documents that aliases blow up and keys given twice."""
    if node is None:
        return
    seen[0] += 1
    if seen[0] > LIMIT_NODES:
        raise InputError(f"{path}: more than {LIMIT_NODES} values (through aliases?); this is not a configuration file")
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        keys: set[Any] = set()
        for key, value in node.value:
            if key.value in keys and isinstance(key, yaml.ScalarNode):
                raise InputError(f"{path}:{key.start_mark.line + 1}: '{key.value}' is given twice")
            if isinstance(key, yaml.ScalarNode):
                keys.add(key.value)
                lines[(*at, key.value)] = key.start_mark.line + 1
                _walk(value, (*at, key.value), lines, seen, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*at, index), lines, seen, path)


def explain(
    error: ValidationError, *, schema: type[BaseModel], document: Document | None = None, prefix: str = ""
) -> str:
    """One line for a pydantic error: where, which field, what is wrong, which names are near; then how many more."""
    problems = error.errors(include_url=False, include_input=True)
    first = problems[0]
    location = tuple(part for part in first["loc"] if not _is_tag(part))
    name = prefix + ".".join(str(part) for part in location)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key"
        near = difflib.get_close_matches(str(location[-1]), _fields(schema, location[:-1]), n=2, cutoff=0.5)
        if near:
            message += "; did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    elif first["type"] != "value_error" and not isinstance(first["input"], dict | list):
        message = f"{message[0].lower()}{message[1:]}, got {first['input']!r}"
    where = f"{document.where(location)}: " if document is not None else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}{name}: {message}{more}" if name else f"{where}{message}{more}"


def _is_tag(part: str | int) -> bool:
    """Discriminators of unions ("leave-one-out") appear in pydantic's locations but not in the document."""
    return isinstance(part, str) and ("-" in part or part.startswith("function"))


def _fields(schema: type[BaseModel], location: Location) -> list[str]:
    """Names of the fields of the (nested) model at a location."""
    models: list[type[BaseModel]] = [schema]
    for part in location:
        found: list[type[BaseModel]] = []
        for model in models:
            field = model.model_fields.get(str(part))
            found += _models(field.annotation) if field is not None else []
        models = found or models
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Model classes inside an annotation such as `A | None` or `dict[str, A]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
