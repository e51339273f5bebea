"""This reads tables of text: columns between commas, tabs, semicolons or bars, and RecBole's atomic files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.data.archive import row_of
from edgefr.data.files.formats import Format
from edgefr.data.files.opened import BLOCK, Opened, printable, stream
from edgefr.data.files.options import FileOptions
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST_HEADER = 1 << 18  # bytes
_MOST_COLUMNS = 10_000
_SEPARATORS = ",\t;|"
_TYPES = ("token", "token_seq", "float", "float_seq")


@dataclass(frozen=True)
class _Layout:
    """This is how a file is laid out: `columns` are their names, `header` says whether its first row holds them."""

    path: Path
    separator: str
    quoted: bool
    columns: tuple[str, ...]
    header: bool = True
    blank: int = 0

    def opened(self) -> Opened:
        """Return the table, which counts the header as row 1."""
        return Opened(str(self.path), self.columns, self._blocks, first=2 if self.header else 1)

    def _blocks(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of these columns as text; nothing at all is null."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        names = [str(place) for place in range(len(self.columns))]  # by place: headers may have a name twice
        wanted = [names[self.columns.index(name)] for name in columns]
        row = 2 if self.header else 1
        with stream(self.path) as file, _rows(str(self.path)):
            blocks = arrow_csv.open_csv(
                file,
                arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK,
                    column_names=names,
                    skip_rows=self.blank,
                    skip_rows_after_names=int(self.header),
                ),
                arrow_csv.ParseOptions(
                    delimiter=self.separator,
                    quote_char='"' if self.quoted else False,
                    newlines_in_values=self.quoted,
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=wanted,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
            for block in blocks:
                yield row, pa.RecordBatch.from_arrays(block.columns, names=list(columns))
                row += block.num_rows


@contextmanager
def _rows(name: str) -> Iterator[None]:
    """Turn what the parser raises into an `InputError` that names file and row."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        row, what = row_of(str(error))
        what = "it is not UTF-8; save it as UTF-8" if "invalid UTF8" in what else what
        raise InputError(f"{name}:{'' if row is None else f' row {row}:'} {what}") from error


def _open_text(path: Path, options: FileOptions, separator: str | None) -> Opened:
    """Open a table of text with quotes; the separator is found in its first row if nobody says it."""
    blank, first = _first_lines(path)
    line = first.lstrip("\n").partition("\n")[0]
    separator = options.separator or separator or max(_SEPARATORS, key=line.count)
    if options.header is not None:
        return _Layout(path, separator, True, tuple(options.header), header=False, blank=blank).opened()
    return _Layout(path, separator, True, _header(path, first, separator), blank=blank).opened()


def _open_atomic(path: Path, options: FileOptions) -> Opened:
    """Open an atomic file of RecBole: tabs, no quotes, and a header that names the type of every column."""
    blank, first = _first_lines(path)
    columns = []
    for column in first.partition("\n")[0].rstrip("\r").split(options.separator or "\t"):
        name, sign, kind = column.rpartition(":")
        if not sign or kind not in _TYPES:
            raise InputError(
                f"{path}: row 1, column {printable(column, 40)}: a header of atomic files is name:type with the types "
                f"{', '.join(_TYPES)}; if this is another table, rename it to .tsv"
            )
        columns.append(name)
    return _Layout(path, options.separator or "\t", False, tuple(columns), blank=blank).opened()


def _first_lines(path: Path) -> tuple[int, str]:
    """Return how many blank lines a file begins with, and the beginning of what follows."""
    with stream(path) as file:
        content = file.read(_LONGEST_HEADER)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path}: it is UTF-16; save it as UTF-8")
    text = content.decode("utf-8-sig", errors="replace")
    if "\0" in text.partition("\n")[0]:
        raise InputError(f"{path}: row 1 holds zero bytes: this is not a table of text")
    if not text.strip():
        raise InputError(f"{path}: the file is empty")
    rest = text.lstrip("\r\n")
    if len(content) < _LONGEST_HEADER and len(rest.splitlines()) < 2 and not rest.endswith(("\r", "\n")):
        raise InputError(f"{path}: it has no rows")
    return text[: len(text) - len(rest)].count("\n"), rest


def _header(path: Path, first: str, separator: str) -> tuple[str, ...]:
    """Return the names of the columns."""
    try:
        names = next(csv.reader(io.StringIO(first, newline=""), delimiter=separator))
    except csv.Error as error:
        raise InputError(f"{path}: row 1: {error}: this is not the header of a table") from error
    if len(names) > _MOST_COLUMNS:
        raise InputError(f"{path}: row 1 has {len(names):,} columns, and {_MOST_COLUMNS:,} is the most")
    if len(first) == _LONGEST_HEADER and "\n" not in first:
        raise InputError(f"{path}: row 1 is longer than {_LONGEST_HEADER:,} bytes: this is not a table of text")
    return tuple(names)


_TEXT = ("separator", "header")
CSV = Format("csv", (".csv", ".txt", ".dat", ".data"), lambda path, options: _open_text(path, options, None), _TEXT)
TSV = Format("tsv", (".tsv", ".tab"), lambda path, options: _open_text(path, options, "\t"), _TEXT)
ATOMIC = Format("atomic", (".inter", ".item"), _open_atomic, ("separator",))
