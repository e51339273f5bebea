"""This reads ratings in blocks under their item, as the Netflix prize has them: "1:", then "user,rating,date".

Owns: recognising such a file, and its rows. Does not own: text (`lines`), dates (`times`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefr.data.files.lines import Text, check_words
from edgefr.data.files.table import Opened, printable
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

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
