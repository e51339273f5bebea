"""Text files of known layouts are recognised by their first lines: adjacency rows, MIND's behaviours, Netflix's prize.

Owns: recognising such a file, and one row for each interaction. Does not own: text (`lines`), dates (`times`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.lines import Text
from edgefr.data.files.streams import printable
from edgefr.data.files.table import OpenTable
from privacy.errors import InputError

LISTED = ("user", "item")
"""The columns that adjacency rows come to."""
_LINES = 1000  # looked at


def _opened(
    path: Path, columns: tuple[str, ...], rows: Callable[[int, bytes], tuple[int, dict[str, Any]]], notes: list[str]
) -> OpenTable:
    """Open a file whose blocks `rows(lines so far, block)` turns into a number of lines and values by column."""

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        line = 0
        for block in Text(path, None, "\t", False).blocks():
            lines, found = rows(line, block)
            yield line + 1, pa.RecordBatch.from_arrays([found[name] for name in wanted], names=list(wanted))
            line += lines

    return OpenTable(str(path), columns, blocks, notes=notes)


def is_adjacency(first: str) -> bool:
    """Say whether a file's first lines are whole numbers between spaces, more in one line than in another.

    >>> is_adjacency("0 4 7 9\\n1 2\\n"), is_adjacency("1 2 5\\n1 3 4\\n"), is_adjacency("user item\\n1 2 3\\n")
    (True, False, False)
    """
    rows = [line.split() for line in first.splitlines()[:_LINES] if line.strip()]
    rows = rows[:-1] if len(first.splitlines()) < _LINES and not first.endswith("\n") and len(rows) > 2 else rows
    return len({len(row) for row in rows}) > 1 and all(map(str.isdigit, (sign for row in rows for sign in row)))


def open_adjacency(path: Path, first: str) -> OpenTable:
    """Open such a file; where every line begins with its length it has no users, and each line is one."""
    looked = [line.split() for line in first.splitlines()[:_LINES] if line.strip()][:-1]
    counted = bool(looked) and all(int(row[0]) == len(row) - 1 for row in looked)

    def rows(line: int, block: bytes) -> tuple[int, dict[str, Any]]:
        found = [row.split() for row in block.splitlines() if row.strip()]
        users = [row[0] for row in found]
        if counted:
            wrong = next((n for n, row in enumerate(found) if row[0] != str(len(row) - 1).encode()), None)
            if wrong is not None:
                raise InputError(f"{path}: line {line + wrong + 1} does not begin with the number of its items")
            users = [str(number).encode() for number in range(line, line + len(found))]
        each = np.repeat(np.arange(len(found)), [len(row) - 1 for row in found])
        items = pa.array([item for row in found for item in row[1:]], pa.string())
        return len(found), {"user": pa.array(users, pa.string()).take(pa.array(each)), "item": items}

    return _opened(path, LISTED, rows, [])


CLICKS = ("user", "item", "time")
"""The columns that such a file comes to."""
_WRITTEN = "%m/%d/%Y %I:%M:%S %p"
_ROW = r"[0-9]+\t[^\t\n]+\t[0-9]+/[0-9]+/[0-9]{4} [0-9:]+ [AP]M\t[^\t\n]*\t\S+(-[01])?( |\r?\n)"


def is_impressions(first: str) -> bool:
    """Say whether a file begins with an impression.

    >>> is_impressions("1\\tU9\\t11/11/2019 9:05:58 AM\\tN3 N4\\tN1-0 N2-1\\n")
    True
    """
    return re.match(_ROW, first) is not None


def open_impressions(path: Path) -> OpenTable:
    """Open such a file, with lines as row numbers. Raises `InputError` if nothing says what was clicked."""
    notes: list[str] = []

    def rows(line: int, block: bytes) -> tuple[int, dict[str, Any]]:
        lines = block.decode(errors="replace").splitlines()
        found = [click for number, row in enumerate(lines, line + 1) for click in _clicks(path, number, row)]
        notes[:] = ["rows are the clicks of impressions; what histories hold has no time"]
        user, item, time = zip(*found, strict=True) if found else ((), (), ())
        named = {"user": pa.array(user, pa.string()), "item": pa.array(item, pa.string())}
        return len(lines), {**named, "time": pa.array(time, pa.timestamp("s"))}

    return _opened(path, CLICKS, rows, notes)


def _clicks(path: Path, number: int, row: str) -> list[tuple[str, str, datetime]]:
    """Return the user, the item and the time of every click of a row."""
    if not row:
        return []
    try:
        _, user, time, _, shown = row.split("\t")
        moment = datetime.strptime(time, _WRITTEN)
    except ValueError as error:
        raise InputError(f"{path}: row {number} is no impression: {printable(str(error))}") from error
    marked = [item.rpartition("-") for item in shown.split()]
    if any(sign not in ("0", "1") or not item for item, _, sign in marked):
        raise InputError(f"{path}: row {number} does not say what was clicked (N1-0 N2-1): take the labelled part")
    return [(user, item, moment) for item, _, sign in marked if sign == "1"]


BLOCKS = ("item", "user", "rating", "time")
"""The columns that such a file comes to."""
_RATED = r"^(?:(?P<item>[^,:]+):|(?P<user>[^,]+),(?P<rating>[^,]*),(?P<time>[^,]*?))?\s*$"


def is_prize(first: str) -> bool:
    """Say whether a file begins with an item's number, a colon, and a rating below it.

    >>> is_prize("1:\\n1488844,3,2005-09-06\\n"), is_prize("1:2\\n")
    (True, False)
    """
    return re.match(r"[0-9]+:\r?\n[0-9]+,[0-9]+,[0-9]{4}-[0-9]{2}-[0-9]{2}\s", first) is not None


def open_prize(path: Path) -> OpenTable:
    """Open such a file; its rows are numbered by its lines."""
    item = ""

    def rows(line: int, block: bytes) -> tuple[int, dict[str, Any]]:
        nonlocal item
        lines = pc.split_pattern(pa.array([block.rstrip(b"\r\n").decode(errors="replace")]), "\n")
        found = pc.extract_regex(lines.flatten(), _RATED)
        wrong = found.is_null().to_numpy(zero_copy_only=False)
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                f"{path}: line {line + at + 1} is '{printable(lines.flatten()[at].as_py(), 80)}'; in blocks under "
                "'item:' a line is user,rating,date"
            )
        heads = pc.not_equal(found.field("item"), "").to_numpy(zero_copy_only=False)
        items = pa.concat_arrays([pa.array([item]), found.field("item").filter(pa.array(heads))])
        item = items[-1].as_py()
        rated = pc.not_equal(found.field("user"), "")
        each = items.take(pa.array(np.cumsum(heads))).filter(rated)
        return len(found), {"item": each, **{name: found.field(name).filter(rated) for name in BLOCKS[1:]}}

    return _opened(path, BLOCKS, rows, [])
