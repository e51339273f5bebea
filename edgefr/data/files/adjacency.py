"""This reads rows of a user and all of their items, as LightGCN's and NGCF's files and CiteULike's lists have them.

Owns: recognising such a file, and one row for each item. Does not own: text (`lines`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefr.data.files.lines import Text, check_words
from edgefr.data.files.table import Opened
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
