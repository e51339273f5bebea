"""This reads LEAF's JSON: one object with "users" and, under "user_data", lists of equal length for each of them.

Owns: recognising such a file, and one row for each place of the lists. Does not own: JSON lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.data.files.table import Opened, printable, stream
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST = 1 << 28  # bytes of a file, which is read whole
_NAMES = {"x": "item", "y": "rating"}
"""What LEAF calls the columns."""


def is_leaf(first: bytes) -> bool:
    """Say whether a file's first bytes are those of LEAF's layout.

    >>> is_leaf(b'{"users": ["u1"], "num_samples": [2], "user_data": {}}'), is_leaf(b'{"user": "u1"}')
    (True, False)
    """
    return re.match(rb'\s*\{\s*"(users|num_samples|user_data)"\s*:\s*[\[{]', first) is not None


def open_leaf(path: Path) -> Opened:
    """Open such a file. Raises `InputError` where the lists of a user are not alike, or hold more than one value."""
    with stream(path) as file:
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise InputError(f"{path}: it has more than {_MOST:,} bytes in one object; write a row for each line")
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
        import pyarrow as pa

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

    return Opened(str(path), ("user", *named), blocks)


def _lists(path: Path, user: str, found: dict[str, list[Any]], columns: Sequence[str]) -> dict[str, list[Any]]:
    who = f"{path}: user {printable(user, 40)}"
    if tuple(found) != tuple(columns) or len({len(values) for values in found.values()}) != 1:
        raise InputError(f"{who} has other lists than the first user, or lists that are not equally long")
    if any(isinstance(value, list | dict) for values in found.values() for value in values):
        raise InputError(f"{who} has lists within a list; an example has to be one item")
    return found
