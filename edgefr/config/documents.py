"""YAML documents from outside: read safely, kept with their line numbers, validated with errors people can act on.

Only plain data is read (safe tags), of a bounded size and depth, without aliases: a small file stays small.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from edgefr.config.display import Brief
from edgefr.config.validation import Location, describe, members, members_at
from privacy.errors import InputError

MAX_DEPTH = 20
MAX_NUMBER = 40  # characters
MAX_VALUE = 100_000  # characters of a value on the command line
MAX_BYTES = 1_000_000  # of a file

Model = TypeVar("Model", bound=BaseModel)


class UnreadableYaml(yaml.MarkedYAMLError):
    """This is valid YAML that is not read: what is wrong, and where it stands."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class PlainLoader(yaml.SafeLoader):
    """This is the safe loader, refusing aliases, tags, depth, keys given twice and numbers nobody writes."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise UnreadableYaml("aliases (*name) are not read; write the values out", self.peek_event().start_mark)
        if getattr(self.peek_event(), "tag", None) is not None:
            raise UnreadableYaml("tags (!name) are not read; write the value alone", self.peek_event().start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableYaml("nested too deeply", self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise UnreadableYaml(f"'{key.value[:MAX_NUMBER]}' is given twice; keep one", key.start_mark)
                seen.add(str(key.value))
        return node

    def _int(self, node: yaml.ScalarNode) -> int:
        return self.construct_yaml_int(_number(node))

    def _float(self, node: yaml.ScalarNode) -> float:
        return self.construct_yaml_float(_number(node))


def composed(text: str) -> tuple[PlainLoader, yaml.Node | None]:
    """Return a document's tree and what makes values of it, by libyaml's events: these take a fifth of the time.

    Where libyaml is not there or refuses the text, Python's parser reads it, so that errors are the same everywhere.
    Raises `yaml.YAMLError`.
    """
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError, ValueError):
            loader, events = PlainLoader(""), vars(yaml.cyaml)["CParser"](text)
            for name in ("check_event", "peek_event", "get_event"):
                setattr(loader, name, getattr(events, name))
            return loader, loader.get_single_node()
    loader = PlainLoader(text)
    return loader, loader.get_single_node()


def value_of(text: str, source: str, mend: str) -> Any:
    """Return a value that was given by itself. Raises `InputError` that begins with `source` and ends with `mend`.

    >>> value_of("[1, 0.5, inf]", "--set x", "quote it")
    [1, 0.5, 'inf']
    """
    if len(text) > MAX_VALUE:
        raise InputError(f"{source[:MAX_NUMBER]}...: the value has more than {MAX_VALUE:,} characters")
    try:
        return yaml.load(text, Loader=PlainLoader)  # noqa: S506  # it is a safe loader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        why = f" ({error.problem})" if isinstance(error, UnreadableYaml) else ""
        raise InputError(f"{source}: {mend}{why}") from None


def _number(node: yaml.ScalarNode) -> yaml.ScalarNode:
    """Return a number's node; raises `UnreadableYaml` for one that is not what it looks like."""
    if not isinstance(node, yaml.ScalarNode):
        raise UnreadableYaml("a number is expected here", node.start_mark)
    if len(node.value) > MAX_NUMBER:
        raise UnreadableYaml(f"a number has more than {MAX_NUMBER} characters", node.start_mark)
    if ":" in node.value:
        raise UnreadableYaml(f"{node.value} is a number to base 60; quote it, or write it out", node.start_mark)
    return node


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader._int)
PlainLoader.add_constructor("tag:yaml.org,2002:float", PlainLoader._float)


class PublicModel(BaseModel, Brief):
    """Models of this kind are made and looked at by hand: a wrong value is one line, and they show what is telling."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(f"{type(self).__name__}: {describe(error, type(self))}") from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # so that validating a document passes it by

    def __repr__(self) -> str:
        return Brief.__repr__(self)

    __str__ = __repr__


def text_for(schema: type[BaseModel], parts: Sequence[str], text: str) -> tuple[str | None] | None:
    """Return what a field of text is told by `text`, as it stands, in a tuple; None where the field is no text.

    A text between quotes is what they enclose, and `null` is nothing where the field may be that.

    >>> class Options(BaseModel):
    ...     time: str = "auto"
    ...     user: str | None = None
    ...     most: int = 1
    >>> [text_for(Options, [name], value) for name, value in (("user", "-"), ("user", "null"), ("time", "'1'"))]
    [('-',), (None,), ('1',)]
    >>> text_for(Options, ["most"], "3") is None
    True
    """
    *sections, last = parts or [""]
    models = members_at(schema, tuple(sections))
    field = models[0].model_fields.get(last) if models else None
    if field is None or members(field.annotation) != [str]:
        return None
    if text == "null" and NoneType in get_args(field.annotation):
        return (None,)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return (text[1:-1] if quoted else text,)


class Document:
    """This is a mapping, the line every value of it stands on, and values laid over it.

    >>> document = Document({"rounds": 3}, "experiment")
    >>> document.put("fleet.dropout", 0.2, source="--set fleet.dropout=0.2")
    >>> document.values["fleet"]
    {'dropout': 0.2}
    """

    def __init__(self, values: dict[str, Any], origin: str, root: yaml.Node | None = None):
        self.values, self.origin, self._root = values, origin, root
        self._sources: dict[Location, str] = {}

    @classmethod
    def read(cls, path: str | Path) -> Document:
        """Read a YAML mapping. Raises `InputError` for a missing, binary, empty, oversized or malformed file."""
        path = Path(path)
        text = _text(path)
        try:
            loader, root = composed(text)
            if root is None:
                raise InputError(f"{path}: the file is empty; start from one that ships with edgefr")
            if not isinstance(root, yaml.MappingNode):
                raise InputError(f"{path}:1: the file must be a mapping of keys and values")
            return cls(loader.construct_document(root), str(path), root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f":{mark.line + 1}" if mark else ""
            raise InputError(f"{path}{where}: {error.problem or 'this is not YAML'}") from error
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: cannot be read as YAML: {(str(error) or 'too deep').splitlines()[0]}") from error

    def put(self, dotted: str, value: Any, source: str) -> None:
        """Set one value by its dotted name; sections are made as needed. `source` is named in errors about it."""
        *sections, last = dotted.split(".")
        at = self.values
        for section in sections:
            if at.get(section) is None:
                at[section] = {}
            if not isinstance(at[section], dict):
                raise InputError(f"{source}: '{section}' is a value, not a section")
            at = at[section]
        at[last] = value
        self._sources[tuple(dotted.split("."))] = source

    def validate(self, schema: type[Model]) -> Model:
        """Return the document as `schema`. Raises `InputError` with origin, line, field and what to do."""
        try:
            return schema.model_validate(self.values)
        except ValidationError as error:
            raise InputError(describe(error, schema, self.where)) from error

    def where(self, location: Location) -> str:
        """Return ``FILE:LINE`` of a location such as ``("devices", "rpi_5_8gb")`` or of the nearest thing above it.

        Or the option that set it, something above it or, last of all, something beside it.
        """
        for length in range(len(location), 0, -1):
            if location[:length] in self._sources:
                return self._sources[location[:length]]
        for length in range(len(location), 0 if self._root is None else len(location) - 1, -1):
            for put, source in reversed(self._sources.items()):
                if length and put[:length] == location[:length]:
                    return source
        return self.origin if self._root is None else f"{self.origin}:{self.line(location)}"

    def line(self, location: Location) -> int:
        """Return the line (from 1) of a location in the file, or of the nearest thing above it."""
        assert self._root is not None
        node, line = self._root, self._root.start_mark.line
        for part in location:
            step = _child(node, part)
            if step is None:
                break
            line, node = step
        return line + 1


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """Return the line and node of one key or index under `node`; None where there is no such thing."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


def _text(path: Path) -> str:
    """Read the file's text; the read is bounded, so that an endless file is refused too."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    if len(content) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 1_000_000} MB, which is no such file; check the path")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8); check the path") from error
    if re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", text):
        raise InputError(f"{path}: not a text file (it holds control characters); check the path")
    return text
