"""Data frames become data sets: pandas, polars and arrow tables, through narwhals, by the same reading as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edgefr.config.validation import first_fault
from edgefr.data.files.options import Columns, FileOptions
from edgefr.data.files.reader import build, found
from edgefr.data.files.table import Opened, faults
from edgefr.data.interactions import Dataset
from privacy.errors import InputError, unknown

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1 << 19
_OF_FILES = ("columns", "items", "separator", "header")


def from_frame(
    interactions: Any, items: Any, columns: Mapping[str, str] | None, name: str, options: Mapping[str, Any]
) -> Dataset:
    """Return the data set of a frame; `Dataset.from_frame` is what people call."""
    known = [key for key in FileOptions.model_fields if key not in _OF_FILES]
    for key in options:
        if key not in known:
            raise unknown("option of Dataset.from_frame", key, known)
    for role in columns or {}:
        if role not in Columns.model_fields:
            raise unknown("column in columns=", role, Columns.model_fields)
    try:
        settings = FileOptions.model_validate({**options, "columns": dict(columns or {})})
    except ValidationError as error:
        place, problem = first_fault(error, FileOptions)
        raise InputError(f"Dataset.from_frame: {'.'.join(map(str, place))}: {problem}") from None
    tables = _opened(interactions, "interactions"), None if items is None else _opened(items, "items")
    source = {"archive": "a data frame", "url": "", "licence": "", "sha256": "", "notes": ""}
    return build(name, found(*tables, settings), settings, source)


def _opened(frame: Any, what: str) -> Opened:
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

    return Opened(what, tuple(str(column) for column in table.columns), blocks)
