"""Data sets out of files that people bring: tables of text, parquet, JSON lines, RecBole's atomic files, data frames.

Owns: reading them, checked and bounded, into the same `Dataset` whatever the format. Does not own: data sets that have
a name (`edgefr.data`), splits (`edgefr.data.splits.leave_one_out`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgefr.config.validation import first_fault
from edgefr.data.files import clock_columns as clocks
from edgefr.data.files import names
from edgefr.data.files.arrow import pa
from edgefr.data.files.assemble import make
from edgefr.data.files.delimited import ATOMIC, CSV, TSV
from edgefr.data.files.folder import open_parts, parts_of, tables
from edgefr.data.files.formats import FORMATS, is_folder, open_table
from edgefr.data.files.jsonl import JSONL
from edgefr.data.files.options import FileOptions
from edgefr.data.files.parquet import PARQUET
from edgefr.data.files.rows import read_rows
from edgefr.data.files.streams import bare, faults, on_disk
from edgefr.data.files.table import OpenTable
from edgefr.data.files.texts import beside, described
from edgefr.data.interactions import Dataset
from privacy.errors import InputError, unknown
from privacy.files import sha256_of
from privacy.progress import Progress

_ROWS_AT_ONCE = 1 << 19  # of a data frame
_OF_FILES = ("columns", "items", "separator", "header")

for _format in (CSV, TSV, PARQUET, JSONL, ATOMIC):
    FORMATS.register(_format)


__all__ = ["FileOptions", "FoundColumns", "build", "digest_of", "look", "look_at", "read"]


@dataclass(frozen=True)
class FoundColumns:
    """These are the tables found by headers, the column of every role, and the columns of texts."""

    interactions: OpenTable
    columns: dict[str, str]
    items: OpenTable | None
    texts: tuple[str, ...]


def look(path: Path, options: FileOptions) -> FoundColumns:
    """Open a file or folder and find its columns; rows are read only if several could be the time."""
    first, second = tables(path, options)
    plain = options.model_copy(update={"header": None, "separator": None, "quote": None})
    table = open_parts(first, options) if is_folder(first) else open_table(first, options)
    return found(table, None if second is None else open_table(second, plain), options)


def look_at(
    tables: Sequence[Path], items: Path | None, options: FileOptions, listed: Sequence[str] = ()
) -> FoundColumns:
    """Open files that are parts of one table, and a file of items, whose columns `listed` may name."""
    table = open_table(tables[0], options) if len(tables) == 1 else open_parts(tables[0].parent, options, tables)
    own = FileOptions(encoding=options.encoding, errors=options.errors, header=list(listed) or None)
    return found(table, None if items is None else open_table(items, own), options)


def found(interactions: OpenTable, items: OpenTable | None, options: FileOptions) -> FoundColumns:
    """Find the columns of tables that were opened."""
    there = list(interactions.columns)
    own = options.columns
    if items is not None and own.domain is not None and own.domain not in there and own.domain in items.columns:
        own = own.model_copy(update={"domain": None})  # it is a column of the file of items
    columns = names.interactions(own, there, interactions.name)
    columns = columns if options.time == "none" else clocks.chosen(interactions, columns, own)
    if items is not None:
        key = names.listed(own.listed, columns["item"], items.columns, items.name)
        return FoundColumns(
            interactions, columns, items, tuple(names.texts(options.texts, items.columns, items.name, (key,)))
        )
    if own.listed is not None:
        raise InputError("data_options.columns.listed is of a file of items, and none is named; set data_options.items")
    said = () if options.texts is None else names.texts(options.texts, there, interactions.name, ())
    return FoundColumns(interactions, columns, None, tuple(said))


def read(path: Path, options: FileOptions, progress: Progress | None = None) -> Dataset:
    """Read the data set of a file or a folder, whole. Raises `InputError` naming file, row and column."""
    there = look(path, options)
    name = bare(path).partition(".")[0] or "data"
    paths = [Path(table.name) for table in (there.interactions, there.items) if table is not None]
    source = {"archive": str(path), "url": "", "licence": "", "sha256": digest_of(paths), "notes": ""}
    return build(name, there, options, source, progress)


def build(
    name: str, there: FoundColumns, options: FileOptions, source: dict[str, Any], progress: Progress | None = None
) -> Dataset:
    """Read the tables that were found into a data set."""
    if progress is not None:
        progress("read data", 0, 1, name)
    inside = there.texts if there.items is None else ()
    rows = read_rows(there.interactions, there.columns, options, inside)
    if options.columns.time is None:
        rows.notes.extend(clocks.told(there.columns, there.interactions.columns))
    source = {**source, "columns": there.columns, "texts": list(there.texts), "ratings": list(rows.ratings)}
    dataset = make(name, rows, options, source)
    if there.items is not None:
        dataset = described(dataset, there.items, there.columns["item"], options)
    elif inside:
        dataset = beside(dataset, rows.texts, rows.item, rows.items)
    if progress is not None:
        progress("read data", 1, 1, name)
    return dataset


def digest_of(files: Sequence[Path]) -> str:
    """Return the digest of one file, or of the digests of several; of a folder its parts are meant."""
    parts = (part for path in files for part in (parts_of(path) if is_folder(path) else [path]))
    digests = [sha256_of(path) for path in dict.fromkeys(map(on_disk, parts))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def from_frame(
    interactions: Any, items: Any, columns: Mapping[str, str] | None, name: str, options: Mapping[str, Any]
) -> Dataset:
    """Return the data set of a frame; `Dataset.from_frame` is what people call."""
    known = [key for key in FileOptions.model_fields if key not in _OF_FILES]
    for key in options:
        if key not in known:
            raise unknown("option of Dataset.from_frame", key, known)
    try:
        settings = FileOptions.model_validate({**options, "columns": dict(columns or {})})
    except ValidationError as error:
        place, problem = first_fault(error, FileOptions)
        raise InputError(f"Dataset.from_frame: {'.'.join(map(str, place))}: {problem}") from None
    tables = _opened(interactions, "interactions"), None if items is None else _opened(items, "items")
    source = {"archive": "a data frame", "url": "", "licence": "", "sha256": "", "notes": ""}
    return build(name, found(*tables, settings), settings, source)


def _opened(frame: Any, what: str) -> OpenTable:
    """Return a frame as a table that was opened; its rows count from 1."""
    import narwhals as nw

    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InputError(
            f"{what}: it takes a data frame of pandas, polars or arrow, not {type(frame).__name__}; read it into one "
            "first (a lazy frame: collect it)"
        ) from None
    except Exception as error:  # narwhals says so in a type of its own
        raise InputError(f"{what}: {' '.join(str(error).split())[:200]}") from error

    def blocks(columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        with faults(what):
            arrow = table.select(*columns).to_arrow()
        row = 1
        for block in arrow.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield row, block
            row += block.num_rows

    return OpenTable(what, tuple(str(column) for column in table.columns), blocks)
