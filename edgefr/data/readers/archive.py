"""Public archives are read as they are distributed, zip or unpacked folder, by the same reading as people's own files.

Owns: finding an archive and its files, and errors that name file, row and public page. Does not own: the columns'
meaning. Nothing is extracted to the disk.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.checked_values import ids
from edgefr.data.files.delimited import CSV
from edgefr.data.files.options import FileOptions
from edgefr.data.files.rows import Published, Rows, read_rows
from edgefr.data.files.streams import files_of
from edgefr.data.files.table import Column, OpenTable, fault
from privacy.errors import InputError
from privacy.files import sha256_of


@dataclass(frozen=True)
class Public:
    """This says where an archive is published and on what terms.

    `called`: what its zip, folder or file is called, where that is not the name of the data set.
    """

    url: str
    licence: str
    notes: str = ""
    called: tuple[str, ...] = ()

    def missing(self, what: str) -> InputError:
        """Return the error for an archive that is not there."""
        return InputError(
            f"{what}; get it from {self.url} (licence: {self.licence}) and name its folder by --data-dir or EDGEFR_DATA"
        )


@dataclass(frozen=True)
class Archive:
    """This is an archive: its files by name, without the leading folder that the zip has."""

    path: Path
    public: Public
    members: Mapping[str, Path]

    def __getitem__(self, member: str) -> Path:
        if member not in self.members:
            raise InputError(f"{self.path} has no {member}")
        return self.members[member]

    def find(self, name: str) -> str | None:
        """Return the member whose last part is `name`, None without one. Raises `InputError` where there are two."""
        found = [member for member in self.members if member.rpartition("/")[2] == name]
        if len(found) > 1:
            raise InputError(f"{self.path}: {name} is there twice, as {found[0]} and {found[1]}; keep one of them")
        return found[0] if found else None

    def table(
        self, member: str, separator: str = ",", header: Sequence[str] | None = None, encoding: str | None = None
    ) -> OpenTable:
        """Open a table of text; `header` names the columns of a file that does not. Quotes count between commas."""
        told = {"header": header and list(header), "quote": separator == ",", "encoding": encoding}
        return CSV.open(self[member], FileOptions(separator=separator, **told))

    def source(self, members: Sequence[str]) -> dict[str, Any]:
        """Return `Dataset.source`; the digest is the zip's, or of the digests of the files read from a folder."""
        if self.path.is_file():
            digest = sha256_of(self.path)
        else:
            parts = [f"{member} {sha256_of(self.members[member])}\n" for member in sorted(members)]
            digest = hashlib.sha256("".join(parts).encode()).hexdigest()
        of = {"url": self.public.url, "licence": self.public.licence, "sha256": digest, "notes": self.public.notes}
        return {"archive": str(self.path), **of}


@contextmanager
def open_archive(data_dir: Path, stem: str, public: Public) -> Iterator[Archive]:
    """Open `stem`.zip in `data_dir`, or else the unpacked folder `stem`, or else the file `stem`.

    Raises `InputError` naming file, public page and licence where none is there. Errors about what is read from it say
    where a whole copy is.
    """
    zipped, folder = data_dir / f"{stem}.zip", data_dir / stem
    path = next((place for place in (zipped, folder) if place.exists()), None)
    if path is None:
        raise public.missing(f"{zipped} is not there, nor an unpacked folder {stem}/")
    try:
        if path.is_dir():
            files = {p.relative_to(path).as_posix(): p for p in sorted(path.rglob("*")) if p.is_file()}
        else:
            there = [(p.relative_to(path).as_posix().removeprefix(f"{stem}/"), p) for p in files_of(path)]
            files = dict(there)
            twice = next((name for n, (name, _) in enumerate(there) if name in dict(there[:n])), None)
            if twice is not None:
                raise InputError(f"{path} has {twice} twice")
        yield Archive(path, public, files)
    except InputError as error:
        raise InputError(f"{without_file_options(str(error))}; get a whole copy from {public.url}") from error


def without_file_options(said: str) -> str:
    """Return what an error says without the options of people's own files, which an archive's reader does not have.

    >>> without_file_options("u.data: row 2: Expected 4 columns; data_options.errors=drop leaves such rows out")
    'u.data: row 2: Expected 4 columns'
    """
    own = rf"data_options\.(?:{'|'.join(FileOptions.model_fields)})\b"
    return re.sub(rf"; [^;]*{own}[^;]*", "", re.sub(rf" \({own}\)", "", said))


def interactions(table: OpenTable, roles: Mapping[str, str], time: str, known: Published | None = None) -> Rows:
    """Read a public table of interactions; `roles` names the column of each, which may follow a prefix and a dot."""
    columns = {}
    for role, name in roles.items():
        found = [column for column in table.columns if column.rpartition(".")[2] == name]
        if len(found) != 1:
            raise InputError(f"{table.name}: row 1: the header must have {name} once")
        columns[role] = found[0]
    rows = read_rows(table, columns, FileOptions(time=time, missing="keep"), (), known)
    if rows.notes:
        raise InputError(f"{table.name}: {rows.notes[0]}")
    return rows


def listed(table: OpenTable, key: str, *others: str) -> list[list[str]]:
    """Return the ids of a table of items and its columns `others`, as text. Raises `InputError` for an id twice."""
    for name in (key, *others):
        if name not in table.columns:
            raise InputError(f"{table.name}: row 1: {name} is missing from the header")
    out: list[list[str]] = [[] for _ in (key, *others)]
    seen: dict[str, int] = {}
    for row, block in table.read([key, *others]):
        column = Column(table.name, row, key, block[key])
        for at, name in enumerate(ids(column).cast("string").to_pylist()):
            if seen.setdefault(name, row + at) != row + at:
                raise column.fault(at, f"it is listed in row {seen[name]} already")
        for into, name in zip(out[1:], others, strict=True):
            into += block[name].fill_null("").to_pylist()
    return [list(seen), *out[1:]]


def places(table: OpenTable, column: str, rows: Rows, ids: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of every row's item among listed ids, int64 [n]. Raises `InputError` for one not listed."""
    number = {name: place for place, name in enumerate(ids)}
    names = rows.items.to_pylist()
    found = np.array([number.get(name, -1) for name in names], np.int64)[rows.item]
    if (found < 0).any():
        at = int((found < 0).argmax())
        raise fault(table.name, table.first + at, column, names[rows.item[at]], "an item must be among the listed ones")
    return found
