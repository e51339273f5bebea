"""A table that was written in parts (part-00000.parquet, part-00001.parquet, ...) is read as one.

Owns: which files are parts, and their rows one after another. Does not own: a format (`formats`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.data.files.formats import format_of, open_table
from edgefr.data.files.opened import Opened, bare, faults
from edgefr.data.files.options import FileOptions
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST = 10_000


def is_part(path: Path) -> bool:
    """Say whether a file's name is that of a part.

    >>> is_part(Path("part-00003-c000.snappy.parquet")), is_part(Path("parts.csv"))
    (True, False)
    """
    return re.match(r"part-[0-9]", bare(path)) is not None


def parts_of(folder: Path) -> list[Path]:
    """Return the parts in a folder, in the order of their names."""
    with faults(str(folder)):
        return sorted(path for path in folder.iterdir() if path.is_file() and is_part(path) and format_of(path))


def open_parts(folder: Path, options: FileOptions) -> Opened:
    """Open the parts of a folder as one table. Raises `InputError` where they are not of one schema."""
    paths = parts_of(folder)
    if len(paths) > _MOST:
        raise InputError(f"{folder}: it has {len(paths):,} parts, and {_MOST:,} is the most; write it as fewer files")
    columns = open_table(paths[0], options).columns
    for path in paths[1:]:
        if open_table(path, options).columns != columns:
            raise InputError(f"{path}: its columns are not those of {paths[0].name}; take it out of the folder")

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        row, schema = 1, None
        for path in paths:
            for _, block in open_table(path, options).read(wanted):
                schema = schema or block.schema
                if block.schema.types != schema.types:
                    raise InputError(f"{path}: its columns have other types than those of {paths[0].name}; mend it")
                yield row, block
                row += block.num_rows

    return Opened(str(folder), columns, blocks)
