"""This reads MIND's behaviours: rows of impression, user, time, history, and what was shown: "N1-0 N2-1".

Owns: recognising such a file, and one row for each click. Does not own: text (`lines`), dates (`times`). Histories have
no times, so clicks before a user's first impression are left out, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.data.files.lines import Text
from edgefr.data.files.table import Opened, printable
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

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
