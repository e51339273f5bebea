"""Text files of known layouts are recognised by their first lines: adjacency rows, MIND's behaviours, Netflix's prize.

Owns: recognising such a file, and one row for each interaction. Does not own: text (`lines`), dates (`times`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefr.data.files.lines import Text, check_words
from edgefr.data.files.table import Opened, printable
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

LISTED = ("user", "item")
"""The columns that such a file comes to."""
_LINES = 1000  # looked at


def is_adjacency(first: str) -> bool:
    """Say whether a file's first lines are whole numbers between spaces, more in one line than in another.

    >>> is_adjacency("0 4 7 9\\n1 2\\n"), is_adjacency("1 2 5\\n1 3 4\\n"), is_adjacency("user item\\n1 2 3\\n")
    (True, False, False)
    """
    rows = [line.split() for line in first.splitlines()[:_LINES] if line.strip()]
    rows = rows[:-1] if len(first.splitlines()) < _LINES and not first.endswith("\n") and len(rows) > 2 else rows
    return len({len(row) for row in rows}) > 1 and all(map(str.isdigit, (sign for row in rows for sign in row)))


def open_adjacency(path: Path, first: str) -> Opened:
    """Open such a file; where every line begins with its length it has no users, and each line is one."""
    rows = [line.split() for line in first.splitlines()[:_LINES] if line.strip()][:-1]
    counted = bool(rows) and all(int(row[0]) == len(row) - 1 for row in rows)

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        import pyarrow as pa

        line = 0
        for block in Text(path, None, " ", False).blocks():
            check_words(path, line + 1, block.split())
            found = [row.split() for row in block.splitlines() if row.strip()]
            if counted:
                wrong = next((n for n, row in enumerate(found) if int(row[0]) != len(row) - 1), None)
                if wrong is not None:
                    raise InputError(f"{path}: line {line + wrong + 1} does not begin with the number of its items")
                users = np.arange(line, line + len(found)).astype("S20")
            else:
                users = np.array([row[0] for row in found])
            lengths = np.array([len(row) - 1 for row in found])
            items = [item for row in found for item in row[1:]]
            names = {"user": np.repeat(users, lengths), "item": np.array(items, "S") if items else np.zeros(0, "S1")}
            arrays = [pa.array(names[name].astype(str), pa.string()) for name in wanted]
            yield line + 1, pa.RecordBatch.from_arrays(arrays, names=list(wanted))
            line += len(found)

    return Opened(str(path), LISTED, blocks)


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


def open_impressions(path: Path) -> Opened:
    """Open such a file, with lines as row numbers. Raises `InputError` if nothing says what was clicked."""
    notes: list[str] = []

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        import pyarrow as pa

        line, before = 0, 0
        for block in Text(path, None, "\t", False).blocks():
            rows = block.decode(errors="replace").splitlines()
            found = [click for number, row in enumerate(rows, line + 1) for click in _clicks(path, number, row)]
            before += sum(bool(row.split("\t")[3]) for row in rows if row)
            named = dict(zip(CLICKS, zip(*found, strict=True), strict=True)) if found else {}
            types = {"time": pa.timestamp("s")}
            arrays = [pa.array(named.get(name, ()), types.get(name, pa.string())) for name in wanted]
            yield line + 1, pa.RecordBatch.from_arrays(arrays, names=list(wanted))
            line += len(rows)
        notes.append(f"rows are the clicks of {line:,} impressions; what {before:,} histories hold has no time")

    return Opened(str(path), CLICKS, blocks, notes=notes)


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


def is_prize(first: str) -> bool:
    """Say whether a file begins with an item's number, a colon, and a rating below it.

    >>> is_prize("1:\\n1488844,3,2005-09-06\\n"), is_prize("1:2\\n")
    (True, False)
    """
    return re.match(r"[0-9]+:\r?\n[0-9]+,[0-9]+,[0-9]{4}-[0-9]{2}-[0-9]{2}\s", first) is not None


def open_prize(path: Path) -> Opened:
    """Open such a file; its rows are numbered by its lines."""

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        line, item = 0, b""
        for block in Text(path, None, ",", False).blocks():
            found = block.splitlines()
            check_words(path, line + 1, found)
            rows = np.char.strip(np.array(found))
            heads = np.char.endswith(rows, b":")
            (at,) = heads.nonzero()
            items = np.concatenate([[item], np.char.rstrip(rows[at], b":")])
            each = items[np.cumsum(heads)]
            yield from _rated(path, line, rows, each, ~heads & (rows != b""), wanted)
            line, item = line + len(rows), items[-1]

    return Opened(str(path), BLOCKS, blocks)


def _rated(
    path: Path, line: int, rows: np.ndarray, items: np.ndarray, rated: np.ndarray, wanted: Sequence[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the ratings of a block; `rated` says which of its rows are some."""
    import pyarrow as pa

    wrong = np.char.count(rows, b",") != 2
    if (wrong & rated).any():
        at = int((wrong & rated).argmax())
        raise InputError(
            f"{path}: line {line + at + 1} is '{printable(rows[at].decode(errors='replace'), 80)}'; in blocks under "
            "'item:' a line is user,rating,date"
        )
    if not rated.any():
        return
    found = np.char.partition(rows[rated], b",")
    users, rest = found[:, 0], np.char.partition(found[:, 2], b",")
    named = {"item": items[rated], "user": users, "rating": rest[:, 0], "time": rest[:, 2]}
    arrays = [pa.array(np.char.decode(named[name], "utf-8", "replace"), pa.string()) for name in wanted]
    yield line + 1, pa.RecordBatch.from_arrays(arrays, names=list(wanted))
