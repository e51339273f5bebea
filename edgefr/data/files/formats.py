"""Formats of files that people bring: each entry opens one, whatever is in its columns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgefr.data.files.options import FileOptions
from edgefr.data.files.streams import PACKED, bare, is_there, size_of
from edgefr.data.files.table import OpenTable
from privacy.errors import InputError
from privacy.table import Table


@dataclass(frozen=True)
class Format:
    """A format has usual ends of names; `open(path, options)` opens a file and reads no rows. `reads`: own options."""

    name: str
    ends: tuple[str, ...]
    open: Callable[[Path, FileOptions], OpenTable]
    reads: tuple[str, ...] = ()


FORMATS: Table[Format] = Table("format of a file", Format, home="edgefr.data.files.reader", group="edgefr.formats")
"""The formats that `open_table` knows."""


def ends() -> list[str]:
    return [end for entry in FORMATS.values() for end in entry.ends]


def format_of(path: Path) -> Format | None:
    """Return the format of a file by its name, None where no format has such names."""
    name = bare(path)
    return next((entry for entry in FORMATS.values() if name.endswith(entry.ends)), None)


def is_folder(path: Path) -> bool:
    """Say whether a path is a folder, or a zip that is called as no table is."""
    zipped = path.suffix.lower() == ".zip" and os.path.isfile(path) and format_of(path) is None
    return os.path.isdir(path) or zipped


def open_table(path: Path, options: FileOptions) -> OpenTable:
    """Open a file of any known format. Raises `InputError` for a file that is missing, empty or of no known format."""
    entry = format_of(path)
    if entry is None:
        packed = " or ".join(PACKED)
        raise InputError(f"{path}: files of data end with {', '.join(ends())} (and {packed} after it); rename it")
    if not is_there(path):
        problem = "is no ordinary file" if os.path.exists(path) else "is not there"
        raise InputError(f"{path} {problem}; check the path")
    if not size_of(path):
        raise InputError(f"{path}: the file is empty")
    for name in ("separator", "header", "quote", "encoding"):
        if getattr(options, name) is not None and name not in entry.reads:
            raise InputError(f"{path}: files of format {entry.name} have no data_options.{name}; drop it")
    opened = entry.open(path, options)
    if not opened.columns:
        raise InputError(f"{path}: it has no columns")
    return opened
