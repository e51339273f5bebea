"""This is a table of somebody's own: its columns, and its rows block by block, bounded and with errors that point.

Owns: what every format's reader returns. Does not own: bytes (`streams`), formats (`formats`), meanings of columns
(`names`, `checked_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.streams import faults, printable
from privacy.errors import InputError

MOST_ROWS = 1 << 30


@dataclass(frozen=True)
class OpenTable:
    """This is an open table, of which only the names of the columns were read.

    `blocks(columns)` yields (number of the first row, rows) of these columns; rows count from `first`, the header
    included. Numbers may be text. `notes` are about the rows that were read.
    """

    name: str
    columns: tuple[str, ...]
    blocks: Callable[[Sequence[str]], Iterator[tuple[int, pa.RecordBatch]]]
    first: int = 1
    notes: list[str] = field(default_factory=list)

    def read(self, columns: Sequence[str]) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yield the blocks of `blocks`, at most `MOST_ROWS` rows; faults of a damaged file are one `InputError`."""
        rows = 0
        with faults(self.name):
            for first, block in self.blocks(columns):
                rows += block.num_rows
                if rows > MOST_ROWS:
                    raise InputError(f"{self.name}: it has more than {MOST_ROWS:,} rows; take a part of it")
                for name, column in zip(block.schema.names, block.columns, strict=True):
                    self._check_places(name, column)
                yield first, block

    def _check_places(self, name: str, column: pa.Array) -> None:
        """Refuse numbers of a dictionary that it does not have, which a damaged file may hold."""
        if pa.types.is_dictionary(column.type):
            ends = pc.min_max(column.indices).as_py()
            if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(column.dictionary):
                raise InputError(f"{self.name}: column {printable(name, 40)} is damaged: it has values of no meaning")


@dataclass(frozen=True)
class Column:
    """This is a column of a block: its values, and the table, row and name that an error about them says."""

    table: str
    row: int
    name: str
    values: pa.Array

    def of(self, values: pa.Array) -> Column:
        """Return other values that stand in the same place."""
        return replace(self, values=values)

    def fault(self, at: int, rule: str) -> InputError:
        """Return the error for the value at a place of the block."""
        try:
            value = self.values[at].as_py() if len(self.values) else None
        except UnicodeDecodeError:
            value, rule = "?", "it is not UTF-8"
        return fault(self.table, self.row + at, self.name, value, rule)

    def refuse(self, bad: npt.NDArray[np.bool_] | pa.BooleanArray, rule: str) -> None:
        """Raise `InputError` for the first bad value."""
        wrong = bad if isinstance(bad, np.ndarray) else bad.to_numpy(zero_copy_only=False)
        if wrong.any():
            raise self.fault(int(wrong.argmax()), rule)

    def refuse_entries(self, bad: pa.BooleanArray, rule: str) -> None:
        """Raise `InputError` for the first row whose entry of the dictionary is bad; entries of no row may be."""
        wrong = bad.fill_null(False).to_numpy(zero_copy_only=False)
        if wrong.any():
            self.refuse(wrong[self.values.indices.to_numpy(zero_copy_only=False)], rule)

    def converted(self, convert: Callable[[Any], Any], rule: str) -> Any:
        """Return `convert(values)`; where that fails, raise an `InputError` that names the first row at fault."""
        try:
            return convert(self.values)
        except pa.ArrowException:
            raise self.fault(first_failing(self.values, convert), rule) from None


def first_failing(values: pa.Array, convert: Callable[[Any], Any]) -> int:
    """Return the place of the first value that `convert` fails for."""
    low, high = 0, len(values)  # the first `low` values convert, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values.slice(low, middle - low))
            low = middle
        except pa.ArrowException:
            high = middle
    return low


def fault(table: str, row: int, column: str, value: object, rule: str) -> InputError:
    """Return the error for a value of a row."""
    found = "nothing is there" if value is None else f"'{printable(str(value), 80)}'"
    return InputError(f"{table}: row {row}, column {printable(column, 40)}: {found}; {rule}")


def is_text(values: pa.Array) -> bool:
    """Say whether values are text of any width."""
    return pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
