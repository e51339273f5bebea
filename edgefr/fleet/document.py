"""A YAML file with the line of every key, so that an error can point at it.

Only plain data is read (safe tags), of a bounded size and depth, without aliases: a small file stays small.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from privacy.errors import InputError

MAX_BYTES = 1_000_000
MAX_DEPTH = 20


class _Loader(yaml.SafeLoader):
    """The safe loader, refusing aliases, deep nesting and keys given twice."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _problem("aliases (*name) are not read; write the values out", self.peek_event().start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _problem("nested too deeply", self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise _problem(f"'{key.value}' is given twice; keep one", key.start_mark)
                seen.add(str(key.value))
        return node


def _problem(what: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark)


class Document:
    """`value`: what the file says, a mapping; `line(location)`: where it says it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = _text(path)
        try:
            loader = _Loader(text)
            root = loader.get_single_node()
            if root is None:
                raise InputError(
                    f"{path}: the file is empty; start from the devices.yaml that ships with edgefr"
                )
            if not isinstance(root, yaml.MappingNode):
                raise InputError(
                    f"{path}:1: the file must be a mapping of sections (schema, devices, fleet, ...)"
                )
            self._root = root
            self.value: dict[str, Any] = loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f":{mark.line + 1}" if mark else ""
            raise InputError(f"{path}{where}: {error.problem or 'this is not YAML'}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: cannot be read as YAML: {_first_line(error)}") from error

    def line(self, location: Sequence[str | int]) -> int:
        """Line (from 1) of a location such as ``("devices", "rpi_5_8gb")``, or of the nearest thing above."""
        node: yaml.Node = self._root
        line = node.start_mark.line
        for part in location:
            step = _child(node, part)
            if step is None:
                break
            line, node = step
        return line + 1


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """The line and node of one key or index under `node`; None where there is no such thing."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None


def _text(path: Path) -> str:
    """The file's text; a bounded read, so that an endless file is refused too."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; give the path of a devices.yaml"
        ) from error
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path}: larger than {MAX_BYTES // 1_000_000} MB, which is no device file; check the path"
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not a text file (byte {error.start} is not UTF-8); check the path"
        ) from error
    if any(ord(c) < 32 and c not in "\t\n\r" for c in text):
        raise InputError(f"{path}: not a text file (it holds control characters); check the path")
    return text


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
