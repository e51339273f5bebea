"""This reads JSON lines, one object for each row, and LEAF's JSON: lists of equal length for each user."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgefr.data.files.arrow import arrow_json, pa
from edgefr.data.files.formats import Format
from edgefr.data.files.lines import Text
from edgefr.data.files.options import FileOptions
from edgefr.data.files.streams import BLOCK, printable, stream
from edgefr.data.files.table import OpenTable
from privacy.errors import InputError

_LOOKED_AT = 20_000  # rows that say which columns there are and of which type
_LONGEST_LOOK = 1 << 20  # bytes
_MOST_OF_LEAF = 1 << 28  # bytes of a file, which is read whole
_NAMES = {"x": "item", "y": "rating"}
"""What LEAF calls the columns."""


def _open(path: Path, options: FileOptions) -> OpenTable:
    with stream(path) as file:
        if is_leaf(file.read(64)):
            return open_leaf(path)
    found: dict[str, pa.DataType] = {}
    literal, seen, notes = _is_literal(path), set[str](), list[str]()
    for row in _first_rows(path, literal):
        seen.update(row)
        for name, value in row.items():
            if _holds_objects(value):  # nothing here reads these
                continue
            kind = _type(value)
            before = found.get(name, pa.null())
            found[name] = kind if before == pa.null() else (_wider(before, kind) or before)

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        kinds = {name: pa.string() if found[name] == pa.null() else found[name] for name in wanted}
        row = 1
        for block in Text(path, None, ",", False).blocks():
            if not block.strip():
                continue
            block = _as_json(path, row, block) if literal else block
            try:
                rows = _parsed(block, kinds)
            except pa.ArrowInvalid:
                kinds = {name: _wide_enough(block, name, kind) for name, kind in kinds.items()}
                try:  # whole numbers came first, and here is another
                    rows = _parsed(block, kinds)
                except pa.ArrowInvalid as error:
                    raise _fault(path, row, str(error)) from error
            yield row, rows
            row += rows.num_rows
            late = sorted(_names(block) - seen)
            seen.update(late)
            notes.extend(
                f"column {printable(name, 40)} begins by row {row - 1:,}, too late to be read" for name in late
            )

    return OpenTable(str(path), tuple(found), blocks, notes=notes)


def _names(block: bytes) -> set[str]:
    with suppress(ValueError, RecursionError):
        row = json.loads(block.rstrip().rpartition(b"\n")[2])
        return set(row) if isinstance(row, dict) else set()
    return set()


def _wide_enough(block: bytes, name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type of a column of whole numbers, wider where this block has another number in it."""
    if kind != pa.int64():
        return kind
    try:
        _parsed(block, {name: kind})
    except pa.ArrowInvalid:
        return pa.float64()
    return kind


def _parsed(block: bytes, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    table = arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(explicit_schema=pa.schema(list(kinds.items())), unexpected_field_behavior="ignore"),
    ).select(list(kinds))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], names=list(kinds))


def _is_literal(path: Path) -> bool:
    """Say whether rows are Python literals, as those of Steam and BeerAdvocate are."""
    with stream(path) as file:
        line = file.readline(_LONGEST_LOOK).strip()
    if not re.match(rb"\{\s*u?['\"]", line):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return isinstance(ast.literal_eval(line.decode("utf-8", "replace")), dict)
    return False


def _as_json(path: Path, first: int, block: bytes) -> bytes:
    """Return lines of Python literals as lines of JSON; nothing is run. Raises `InputError` naming the row."""
    out = []
    for number, line in enumerate(filter(bytes.strip, block.splitlines()), first):
        try:
            out.append(json.dumps(ast.literal_eval(line.decode()), allow_nan=False))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise InputError(f"{path}: row {number} is no dict as Python writes it: {printable(str(error))}") from error
    return "\n".join(out).encode()


def _first_rows(path: Path, literal: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the first rows of a file, as plain values."""
    with stream(path) as file:
        text = file.read(_LONGEST_LOOK)
    lines = text.removeprefix(b"\xef\xbb\xbf").splitlines()
    if len(text) == _LONGEST_LOOK:
        if len(lines) < 2:
            raise InputError(f"{path}: row 1 is longer than {_LONGEST_LOOK:,} bytes: these are not JSON lines")
        lines.pop()
    number = 0
    for line in lines:
        if not line.strip():
            continue
        number += 1
        if number > _LOOKED_AT:
            return
        try:
            row = json.loads(_as_json(path, number, line) if literal else line)
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            why = "an array; write one object a line" if line.lstrip()[:1] == b"[" else printable(str(error))
            raise InputError(f"{path}: row {number} is not a JSON object: {why}") from error
        if not isinstance(row, dict):
            what = "an array" if isinstance(row, list) else type(row).__name__
            raise InputError(f"{path}: row {number} is {what}, not a JSON object; write one object a line")
        yield row
    if not number:
        raise InputError(f"{path}: the file is empty")


def _holds_objects(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_holds_objects, value)))


def _type(value: Any) -> pa.DataType:
    """Return the type of a JSON value; what has none of its own here is null."""
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else pa.uint64() if 0 < value < 2**64 else pa.float64()
    if isinstance(value, list):
        inner = next((kind for kind in map(_type, value) if kind != pa.null()), pa.string())
        return pa.list_(inner)
    return {str: pa.string(), float: pa.float64()}.get(type(value), pa.null())


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type of both numbers, None where one of them is none."""
    if {one, other} == {pa.int64(), pa.uint64()}:
        return pa.uint64()
    numbers = (pa.int64(), pa.uint64(), pa.float64())
    return pa.float64() if one in numbers and other in numbers and one != other else None


def _fault(path: Path, first: int, message: str) -> InputError:
    place = re.search(r" in row (\d+)", message)
    column = re.search(r"Column\(/([^)]*)\)", message)
    if "straddling" in message:
        return InputError(f"{path}: a row after row {first} is longer than {BLOCK:,} bytes: these are not JSON lines")
    at = "" if place is None else f" row {first + int(place.group(1))}"
    at += "" if column is None else f", column {printable(column.group(1), 40)}"
    what = re.sub(r"^JSON parse error: |Column\([^)]*\) | in row \d+", "", message)
    return InputError(f"{path}:{at}{':' if at else ''} {printable(what)}")


def is_leaf(first: bytes) -> bool:
    """Say whether a file's first bytes are those of LEAF's layout.

    >>> is_leaf(b'{"users": ["u1"], "num_samples": [2], "user_data": {}}'), is_leaf(b'{"user": "u1"}')
    (True, False)
    """
    return re.match(rb'\s*\{\s*"(users|num_samples|user_data)"\s*:\s*[\[{]', first) is not None


def open_leaf(path: Path) -> OpenTable:
    """Open such a file. Raises `InputError` where the lists of a user are not alike, or hold more than one value."""
    with stream(path) as file:
        content = file.read(_MOST_OF_LEAF + 1)
    if len(content) > _MOST_OF_LEAF:
        raise InputError(f"{path}: it has more than {_MOST_OF_LEAF:,} bytes in one object; write a row for each line")
    try:
        lists = json.loads(content)["user_data"]
        columns = tuple(next(iter(lists.values())))
        rows = {user: _lists(path, user, found, columns) for user, found in lists.items()}
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise InputError(f"{path}: it has no lists by user under user_data: {printable(str(error))}") from error
    named = {_NAMES.get(name, name): name for name in columns}

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        arrays = []
        for name in wanted:
            if name == "user":
                values = [user for user, found in rows.items() for _ in found[columns[0]]]
            else:
                values = [value for found in rows.values() for value in found[named[name]]]
            try:
                arrays.append(pa.array(values))
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                arrays.append(pa.array([str(value) for value in values], pa.string()))
        yield 1, pa.RecordBatch.from_arrays(arrays, names=list(wanted))

    return OpenTable(str(path), ("user", *named), blocks)


def _lists(path: Path, user: str, found: dict[str, list[Any]], columns: Sequence[str]) -> dict[str, list[Any]]:
    who = f"{path}: user {printable(user, 40)}"
    if tuple(found) != tuple(columns) or len({len(values) for values in found.values()}) != 1:
        raise InputError(f"{who} has other lists than the first user, or lists that are not equally long")
    if any(isinstance(value, list | dict) for values in found.values() for value in values):
        raise InputError(f"{who} has lists within a list; an example has to be one item")
    return found


JSONL = Format("jsonl", (".jsonl", ".ndjson", ".json"), _open)
