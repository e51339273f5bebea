"""This reads a table in parts as one: part-00000.parquet and so on, or train.txt and test.txt.

Owns: which files are parts, and the order of their rows. Does not own: formats (`formats`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.data.files.formats import format_of, open_table
from edgefr.data.files.options import FileOptions
from edgefr.data.files.table import Opened, bare, files_of
from edgefr.data.files.text_layouts import LISTED, open_adjacency
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST = 20_000
SPLITS = ("train", "training", "valid", "validation", "val", "dev", "test")
"""What files of a split of one's own are called."""
_SPLIT = "split"


def is_part(path: Path) -> bool:
    """Say whether a file's name is that of a part, as Spark writes them or Netflix's prize had them.

    >>> is_part(Path("part-00003-c000.snappy.parquet")), is_part(Path("mv_0000001.txt")), is_part(Path("parts.csv"))
    (True, True, False)
    """
    return re.match(r"(part-|mv_|combined_data_)[0-9]", bare(path)) is not None


def split_of(path: Path) -> str | None:
    """Return which part of a split a file is by its name, None for another.

    >>> split_of(Path("ml-100k.train.inter")), split_of(Path("test.txt")), split_of(Path("ratings.csv"))
    ('train', 'test', None)
    """
    words = re.findall(r"[a-z0-9]+", bare(path).rpartition(".")[0])
    return words[-1] if words and words[-1] in SPLITS else None


def parts_of(folder: Path) -> list[Path]:
    """Return the parts in a folder: in the order of their names, or training before validation and test."""
    there = [path for path in files_of(folder) if format_of(path)]
    parts = [path for path in there if is_part(path)]
    split = [path for path in there if split_of(path) and not bare(path).endswith(".item")]
    return parts or sorted(split, key=lambda path: SPLITS.index(str(split_of(path))))


def open_parts(folder: Path, options: FileOptions, paths: Sequence[Path] = ()) -> Opened:
    """Open a folder's parts, or `paths`, as one table. Raises `InputError` if their columns differ."""
    paths = paths or parts_of(folder)
    if len(paths) > _MOST:
        raise InputError(f"{folder}: it has {len(paths):,} parts, and {_MOST:,} is the most; write it as fewer files")
    columns = open_table(paths[0], options).columns

    def opened(path: Path) -> Opened:
        found = open_table(path, options)
        alike = found.columns == columns or columns != LISTED
        return found if alike else open_adjacency(path, "")  # a line of two numbers says by itself not what it is

    for path in paths[1:]:
        if opened(path).columns != columns:
            raise InputError(f"{path}: its columns are not those of {paths[0].name}; take it out of the folder")

    own = _SPLIT if split_of(paths[0]) and _SPLIT not in columns else None

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        row, schema = 1, None
        for path in paths:
            for _, block in opened(path).read([name for name in wanted if name != own]):
                schema = schema or block.schema
                if block.schema.types != schema.types:
                    raise InputError(f"{path}: its columns have other types than those of {paths[0].name}; mend it")
                yield row, block if own is None else _with_split(block, wanted, str(split_of(path)))
                row += block.num_rows

    return Opened(str(folder), columns if own is None else (*columns, _SPLIT), blocks)


def _with_split(block: pa.RecordBatch, wanted: Sequence[str], part: str) -> pa.RecordBatch:
    """Return the block with one more column: the part of the split that all of its rows are of."""
    import pyarrow as pa

    own = pa.array([part], pa.string()).dictionary_encode().take(pa.array([0] * block.num_rows, pa.int32()))
    arrays = [own if name == _SPLIT else block.column(name) for name in wanted]
    return pa.RecordBatch.from_arrays(arrays, names=list(wanted))
