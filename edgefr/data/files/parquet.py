"""This reads parquet files, row group by row group, without unpacking what is dictionary-encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edgefr.data.files.arrow import pa, parquet
from edgefr.data.files.formats import Format
from edgefr.data.files.options import FileOptions
from edgefr.data.files.streams import bare, faults, on_disk
from edgefr.data.files.table import MOST_ROWS, OpenTable
from privacy.errors import InputError

_ROWS_AT_ONCE = 1 << 20
_MOST_UNPACKED = 1 << 33  # bytes of one row group
_MOST_PER_BYTE = 20  # rows to bytes of the file, above a million rows: a row of two ids takes about two bytes


def _open(path: Path, options: FileOptions) -> OpenTable:
    if on_disk(path) != path or bare(path) != path.name.lower():
        raise InputError(f"{path}: a parquet file is read where it lies, not out of another; unpack it")
    with faults(str(path)), parquet.ParquetFile(str(path)) as file:
        columns, rows = tuple(file.schema_arrow.names), file.metadata.num_rows
    if rows > MOST_ROWS or (rows > 1_000_000 and rows > _MOST_PER_BYTE * path.stat().st_size):
        raise InputError(f"{path}: it says that it has {rows:,} rows, which no honest file of its size has")

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        row = 1
        with parquet.ParquetFile(str(path), read_dictionary=_texts(path, wanted)) as file:
            _check_sizes(path, file)
            for block in file.iter_batches(_ROWS_AT_ONCE, columns=list(wanted), use_threads=False):
                yield row, block.select(list(wanted))
                row += block.num_rows

    return OpenTable(str(path), columns, blocks)


def _texts(path: Path, wanted: Sequence[str]) -> list[str]:
    """Return which columns are text: these are read as numbers of a dictionary."""
    schema = parquet.read_schema(str(path))
    fields = [schema.field(schema.get_field_index(name)) for name in wanted if schema.get_field_index(name) >= 0]
    return [field.name for field in fields if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]


def _check_sizes(path: Path, file: pa.parquet.ParquetFile) -> None:
    """Refuse row groups that unpack to more than memory should hold."""
    # What a file says of single columns is left alone: damaged, it ends the process instead of raising.
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).total_byte_size
        if size > _MOST_UNPACKED:
            raise InputError(
                f"{path}: row group {group + 1} unpacks to {size:,} bytes, and {_MOST_UNPACKED:,} is the most; write "
                "it with smaller row groups"
            )


PARQUET = Format("parquet", (".parquet", ".pq"), _open)
