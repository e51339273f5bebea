"""This reads tables of text: columns between commas, tabs, semicolons or bars, and RecBole's atomic files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgefr.data.files.arrow import arrow_csv, pa
from edgefr.data.files.formats import Format
from edgefr.data.files.lines import Text, lines_of, wrong_encoding
from edgefr.data.files.names import plain
from edgefr.data.files.options import FileOptions
from edgefr.data.files.streams import BLOCK, printable, stream
from edgefr.data.files.table import OpenTable
from edgefr.data.files.text_layouts import (
    is_adjacency,
    is_impressions,
    is_prize,
    open_adjacency,
    open_impressions,
    open_prize,
)
from privacy.errors import InputError

_LONGEST_HEADER = 1 << 18  # bytes
_MOST_COLUMNS = 10_000
_SEPARATORS = ",\t;|"
_TYPES = ("token", "token_seq", "float", "float_seq")


def _opened(text: Text, columns: tuple[str, ...], header: bool, blank: int, drop: bool) -> OpenTable:
    """Return a table of these columns, which counts a `header` as row 1; `blank` lines come first, odd rows `drop`."""
    name, notes, names = str(text.path), list[str](), [str(place) for place in range(len(columns))]

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of these columns as text; empty fields are null."""
        row, skipped, inside = 1 + header, list[int](), 0
        for place, block in enumerate(text.blocks()):
            before, first = len(skipped), place == 0
            with _rows(name, 0 if first else row - 1, text):  # by place: headers may have a name twice
                read = {"column_names": names, "skip_rows": first * blank, "skip_rows_after_names": first * header}
                found = _parsed(block, text, read, [names[columns.index(one)] for one in wanted], drop, skipped)
            inside += lines_of(block) - first * header - found.num_rows - (len(skipped) - before)
            yield row, found.rename_columns(list(wanted))
            row += found.num_rows
        if skipped:
            notes.append(f"{len(skipped):,} rows have another number of columns (data_options.errors=drop)")
        if inside:
            notes.append(
                f"{inside:,} line breaks stand between quotes (data_options.quote=no reads each line as a row)"
            )

    return OpenTable(name, columns, blocks, 1 + header, notes)


def _parsed(
    block: bytes, text: Text, read: dict[str, Any], wanted: list[str], drop: bool, skipped: list[int]
) -> pa.RecordBatch:
    """Return the rows of a block; nothing reads ahead, since that would outlive the file. Odd rows go to `skipped`."""

    def skip(row: object) -> str:
        skipped.append(1)
        return "skip"

    table = arrow_csv.read_csv(
        pa.BufferReader(block),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, **read),
        arrow_csv.ParseOptions(
            delimiter=text.sign,
            quote_char='"' if text.quoted else False,
            escape_char="\\" if text.escaped else False,
            newlines_in_values=text.quoted,
            invalid_row_handler=skip if drop else None,
        ),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(read["column_names"], pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], names=wanted)


@contextmanager
def _rows(name: str, before: int, text: Text) -> Iterator[None]:
    """Turn a parser's error into an `InputError` that names file and row; `before`: rows of earlier blocks."""
    try:
        yield
    except pa.ArrowInvalid as error:
        row, what = _row_of(str(error))
        where = "" if row is None else f" row {row + before}:"
        if "invalid UTF8" in what:
            raise wrong_encoding(f"{name}:{where}".rstrip(":"), text.encoding) from error
        if "Expected" in what:
            what = f"{what[:200]}; data_options.errors=drop leaves such rows out"
        raise InputError(f"{name}:{where} {what}") from error


def _row_of(message: str) -> tuple[int | None, str]:
    """Return (line, what is wrong) of a parser's message."""
    if "does not exist in CSV file" in message:
        column = message.strip("'\"").split(" in include_columns")[0]
        return 1, f"{column} is missing from the header"
    if "straddling" in message:
        return None, f"a row is longer than {BLOCK:,} bytes: this is not a table of text"
    found = re.search(r"Row #(\d+): (.*)", message, re.DOTALL)
    what = found.group(2) if found else message
    if what.rstrip().endswith("invalid value ''"):
        what = "a blank line, or an empty field where a number stands"
    return (int(found.group(1)) if found else None), printable(what)


def _open_text(path: Path, options: FileOptions, separator: str | None) -> OpenTable:
    """Open a table of text; separator and quotes are found in its first rows if nobody says them."""
    blank, first = _first_lines(path, options.encoding)
    if options.header is None and options.separator is None:
        if is_adjacency(first):
            return open_adjacency(path, first)
        if is_prize(first):
            return open_prize(path)
        if is_impressions(first):
            return open_impressions(path)
    line = first.lstrip("\n").partition("\n")[0]
    separator = options.separator or separator or _separator(line)
    quoted = _quotes(first, separator) if options.quote is None else options.quote
    quoted, drop = quoted and len(separator) == 1, options.errors == "drop"
    text = Text(path, options.encoding, separator, quoted, quoted and '\\"' in first)
    cells = _header(path, first, separator, text.quoted)
    if options.header is None:
        return _opened(text, cells, True, blank, drop)
    if [plain(cell) for cell in cells] == [plain(name) for name in options.header]:
        raise InputError(f"{path}: its first row holds the names that data_options.header gives: drop the option")
    return _opened(text, tuple(options.header), False, blank, drop)


def _separator(line: str) -> str:
    """Return what most likely stands between the columns of a file's first line."""
    if line.count("::") > 1:
        return "::"
    found = max(_SEPARATORS, key=line.count)
    return " " if not line.count(found) and " " in line.strip() else found


def _quotes(first: str, separator: str) -> bool:
    """Say whether quotes enclose fields; with tabs only if every quote that begins a field ends one."""
    if separator != "\t":
        return True
    fields = [field for line in first.splitlines() for field in line.split("\t") if field.startswith('"')]
    return bool(fields) and all(len(field) > 1 and field.endswith('"') for field in fields)


def _open_atomic(path: Path, options: FileOptions) -> OpenTable:
    """Open an atomic file of RecBole: tabs, no quotes, and a header that names the type of every column."""
    blank, first = _first_lines(path, None)
    columns = []
    for column in first.partition("\n")[0].rstrip("\r").split(options.separator or "\t"):
        name, sign, kind = column.rpartition(":")
        if not sign or kind not in _TYPES:
            raise InputError(
                f"{path}: row 1, column {printable(column, 40)}: a header of atomic files is name:type with the types "
                f"{', '.join(_TYPES)}; if this is another table, rename it to .tsv"
            )
        columns.append(name)
    history = next((name for name in columns if name.removesuffix("_list") in set(columns) - {name}), None)
    if history is not None:
        raise InputError(
            f"{path}: its rows are histories (column {printable(history, 40)}), one for each item that followed; take "
            "the .inter file that has a row for each interaction"
        )
    text = Text(path, None, options.separator or "\t", False)
    return _opened(text, tuple(columns), True, blank, options.errors == "drop")


def _first_lines(path: Path, encoding: str | None) -> tuple[int, str]:
    """Return how many blank lines a file begins with, and the beginning of what follows."""
    with stream(path) as file:
        content = file.read(_LONGEST_HEADER)
    if encoding is None and content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path}: it is UTF-16: set data_options.encoding=utf-16")
    text = content.decode(encoding or "utf-8-sig", errors="replace").removeprefix("\ufeff")
    if "\0" in text.partition("\n")[0]:
        raise InputError(f"{path}: row 1 holds zero bytes: this is not a table of text")
    if not text.strip():
        raise InputError(f"{path}: the file is empty")
    rest = text.lstrip("\r\n")
    if len(content) < _LONGEST_HEADER and len(rest.splitlines()) < 2 and not rest.endswith(("\r", "\n")):
        raise InputError(f"{path}: it has no rows")
    return text[: len(text) - len(rest)].count("\n"), rest


def _header(path: Path, first: str, separator: str, quoted: bool) -> tuple[str, ...]:
    try:
        if len(separator) > 1:
            names = first.partition("\n")[0].rstrip("\r").split(separator)
        else:
            names = next(
                csv.reader(
                    io.StringIO(first, newline=""),
                    delimiter=separator,
                    quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
                )
            )
    except csv.Error as error:
        raise InputError(f"{path}: row 1: {error}: this is not the header of a table") from error
    if len(names) > _MOST_COLUMNS:
        raise InputError(f"{path}: row 1 has {len(names):,} columns, and {_MOST_COLUMNS:,} is the most")
    if len(first) == _LONGEST_HEADER and "\n" not in first:
        raise InputError(f"{path}: row 1 is longer than {_LONGEST_HEADER:,} bytes: this is not a table of text")
    return tuple(names)


_TEXT = ("separator", "header", "quote", "encoding")
CSV = Format("csv", (".csv", ".txt", ".dat", ".data"), lambda path, options: _open_text(path, options, None), _TEXT)
TSV = Format("tsv", (".tsv", ".tab"), lambda path, options: _open_text(path, options, "\t"), _TEXT)
ATOMIC = Format("atomic", (".inter", ".item"), _open_atomic, ("separator",))
