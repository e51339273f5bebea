"""This reads public archives as they are distributed, zip or unpacked folder: found, bounded, and read row by row.

Owns: finding files, reading columns, errors with file and row. Does not own: the columns' meaning. Zip members are
streamed; nothing is extracted to the disk.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import numpy as np
import numpy.typing as npt

from edgefr.data.files.table import Bounded
from privacy.errors import InputError
from privacy.files import sha256_of

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 22  # bytes parsed at once; no row is longer
_MAX_BYTES = 1 << 36  # of one unpacked member
_MAX_RATIO = 200  # unpacked to packed, above 64 MB: interaction tables stay under 20
_MAX_ID = 64  # characters
_UNIT = "\x1f"  # what separates units in ASCII
_CHUNK = 1 << 16
_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Public:
    """This says where an archive is published and on what terms."""

    url: str
    licence: str
    notes: str = ""


@dataclass(frozen=True)
class Archive:
    """This is one opened archive: its members by name, without the leading folder that the zip has."""

    path: Path
    public: Public
    members: Mapping[str, zipfile.ZipInfo | Path]
    zipped: zipfile.ZipFile | None = field(default=None, repr=False)

    def require(self, member: str) -> zipfile.ZipInfo | Path:
        """Return the member, or an `InputError` that says it is missing."""
        if member not in self.members:
            raise InputError(f"{self.path} has no {member}; get a whole copy from {self.public.url}")
        return self.members[member]

    @contextmanager
    def open(self, member: str) -> Iterator[BinaryIO]:
        """Open the member as a stream of bytes; `.gz` members are unpacked on the way."""
        found = self.require(member)
        with self.faults(member):
            if isinstance(found, Path):
                raw = cast(BinaryIO, found.open("rb"))
            else:
                self._check_size(member, found)
                raw = self._open_zipped(member, found)
            with raw:
                yield self._unpacked(member, found, raw) if member.endswith(".gz") else raw

    def _unpacked(self, member: str, found: zipfile.ZipInfo | Path, raw: BinaryIO) -> BinaryIO:
        """Return a `.gz` member as a stream of what it unpacks to, which ends where no honest copy does."""
        size = found.stat().st_size if isinstance(found, Path) else found.file_size
        unpacked = cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        return cast(BinaryIO, io.BufferedReader(Bounded(unpacked, size, f"{self.path}: {member}")))

    def _open_zipped(self, member: str, info: zipfile.ZipInfo) -> BinaryIO:
        assert self.zipped is not None
        try:
            return cast(BinaryIO, self.zipped.open(info))
        except (RuntimeError, NotImplementedError) as error:
            raise self.fault(member, None, f"locked or packed in an unknown way ({error})") from error

    def _check_size(self, member: str, info: zipfile.ZipInfo) -> None:
        swollen = info.file_size > 1 << 26 and info.file_size > _MAX_RATIO * max(info.compress_size, 1)
        if swollen or info.file_size > _MAX_BYTES:
            raise InputError(
                f"{self.path}: {member} claims to unpack to {info.file_size:,} bytes from "
                f"{info.compress_size:,}, which no honest copy does; get it from {self.public.url}"
            )

    @contextmanager
    def faults(self, member: str) -> Iterator[None]:
        """Turn what a damaged file raises into one `InputError` that names file and row."""
        import pyarrow as pa

        try:
            yield
        except InputError:
            raise
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise self.fault(member, *row_of(str(error))) from error
        except UnicodeDecodeError as error:
            raise self.fault(member, None, f"byte {error.start} is not {error.encoding} text") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise self.fault(member, None, f"damaged or unreadable ({why})") from error

    def fault(self, member: str, line: int | None, what: str) -> InputError:
        at = f" line {line}" if line is not None else ""
        return InputError(f"{self.path}: {member}{at}: {what}; get a whole copy from {self.public.url}")

    def source(self, members: Sequence[str]) -> dict[str, Any]:
        """Return `Dataset.source`; the digest is the zip's, or of the digests of the files read from a folder."""
        if self.zipped is not None:
            digest = sha256_of(self.path)
        else:
            parts = [f"{m} {sha256_of(cast(Path, self.members[m]))}\n" for m in sorted(members)]
            digest = hashlib.sha256("".join(parts).encode()).hexdigest()
        public = self.public
        return {
            "archive": str(self.path),
            "url": public.url,
            "licence": public.licence,
            "sha256": digest,
            "notes": public.notes,
        }


@contextmanager
def open_archive(data_dir: Path, stem: str, public: Public) -> Iterator[Archive]:
    """Open `stem`.zip in `data_dir`, or else the unpacked folder `stem`.

    Raises `InputError` naming the file, its public page and its licence when neither is there, and when the zip is
    damaged.
    """
    path, folder = data_dir / f"{stem}.zip", data_dir / stem
    if path.is_file():
        try:
            zipped = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InputError(f"{path} is not a whole zip file ({error}); get a fresh copy from {public.url}") from error
        with zipped:
            infos = dict[str, zipfile.ZipInfo]()
            for info in zipped.infolist():
                name = info.filename.removeprefix(f"{stem}/")
                if name in infos:
                    raise InputError(f"{path} has {name} twice; get a fresh copy from {public.url}")
                if not info.is_dir():
                    infos[name] = info
            yield Archive(path, public, infos, zipped)
    elif folder.is_dir():
        files = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
        yield Archive(folder, public, files)
    else:
        raise InputError(
            f"{path} is not there, nor an unpacked folder {stem}/; get it from {public.url} "
            f"(licence: {public.licence}) and name its folder by --data-dir or EDGEFR_DATA"
        )


@contextmanager
def open_file(data_dir: Path, name: str, public: Public) -> Iterator[Archive]:
    """Open the single file `name` of `data_dir` as an archive of one member. Raises `InputError` when it is missing."""
    if not (data_dir / name).is_file():
        raise InputError(
            f"{data_dir / name} is not there; get it from {public.url} (licence: {public.licence}) "
            "and name its folder by --data-dir or EDGEFR_DATA"
        )
    yield Archive(data_dir, public, {name: data_dir / name})


Wanted = dict[str, Literal["int", "float", "str"]]
"""Columns by name and what they must hold."""


def read_table(
    archive: Archive,
    member: str,
    columns: Wanted,
    separator: str = ",",
    header: bool = True,
    every_column: Sequence[str] | None = None,
    encoding: str = "utf8",
    skip: int = 0,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (line number of the first row, rows) block by block, checked: column count, numbers, text encoding.

    `columns` are those wanted, by name; with ``header=False`` `every_column` names the file's. `separator` is one or
    two characters. `skip` lines at the start are left out; blank lines are rows, and lines count from 1. Quotes count
    only with a header and commas, and never hold a line's end. Raises `InputError` naming file and line.
    """
    import pyarrow as pa
    from pyarrow import csv

    types = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}
    names = list(every_column or columns)
    line, quoted = skip + (2 if header else 1), header and separator == ","
    with archive.open(member) as file, archive.faults(member):
        source = _Counted(file)
        blocks = csv.open_csv(
            cast(BinaryIO, source) if len(separator) == 1 else _one_sign(cast(BinaryIO, source), separator),
            csv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK,
                encoding=encoding,
                column_names=None if header else names,
                skip_rows=skip,
            ),
            csv.ParseOptions(
                delimiter=separator if len(separator) == 1 else _UNIT,
                quote_char='"' if quoted else False,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                column_types={name: types[kind] for name, kind in columns.items()},
                include_columns=list(columns),
                null_values=[],
                strings_can_be_null=False,
            ),
        )
        for block in blocks:
            yield line, block
            line += block.num_rows
        if line <= source.lines:
            rows = f"{source.lines:,} lines are {line - 1:,} rows"
            raise archive.fault(member, None, f"{rows}, so a quote runs over the end of a line")


class _Counted(io.RawIOBase):
    """This is a stream that counts its lines as they are read."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.file, self.ends, self.last = file, 0, b"\n"

    @property
    def lines(self) -> int:
        """Return how many lines were read, the last one with or without an end."""
        return self.ends + (self.last != b"\n")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.file.read(len(buffer))
        self.ends, self.last = self.ends + piece.count(b"\n"), piece[-1:] or self.last
        buffer[: len(piece)] = piece
        return len(piece)


def _one_sign(file: BinaryIO, separator: str) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Cut(file, separator.encode()), _CHUNK))


class _Cut(io.RawIOBase):
    """This is a stream with one other byte for every separator of two equal bytes, wherever the pieces read end."""

    def __init__(self, file: BinaryIO, separator: bytes) -> None:
        super().__init__()
        self.file, self.separator, self.left = file, separator, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            piece = self.file.read(max(len(buffer) - len(self.left), 1))
            text = (self.left + piece).replace(self.separator, _UNIT.encode())
            half = piece and text.endswith(self.separator[:1])  # its other half may be what comes next
            text, self.left = (text[:-1], text[-1:]) if half else (text, b"")
            if text or not piece:
                buffer[: len(text)] = text
                return len(text)


def row_of(message: str) -> tuple[int | None, str]:
    """Return (line, what is wrong) of a parser's message."""
    if "does not exist in CSV file" in message:
        column = message.strip("'\"").split(" in include_columns")[0]
        return 1, f"{column} is missing from the header"
    if "straddling" in message:
        return None, f"a row is longer than {_BLOCK:,} bytes: this is not a table of text"
    found = re.search(r"Row #(\d+): (.*)", message, re.DOTALL)
    what = found.group(2) if found else message
    if what.rstrip().endswith("invalid value ''"):
        what = "a blank line, or an empty field where a number stands"
    return (int(found.group(1)) if found else None), _printable(what)


def _printable(text: str, most: int = 120) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:most]


class Numbering:
    """Ids get numbers in order of first appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add(self, column: pa.Array) -> npt.NDArray[np.int32]:
        """Return the numbers of these ids; new ids get the next ones."""
        return self._look_up(column, lambda name: self.numbers.setdefault(name, len(self.numbers)))

    def find(self, column: pa.Array) -> npt.NDArray[np.int32]:
        return self._look_up(column, lambda name: self.numbers.get(name, -1))

    def ids(self) -> npt.NDArray[np.str_]:
        return np.array(list(self.numbers), dtype=np.str_)

    def _look_up(self, column: pa.Array, number: Callable[[str], int]) -> npt.NDArray[np.int32]:
        coded = column.dictionary_encode()
        names = np.array([number(str(name)) for name in coded.dictionary.to_pylist()], dtype=np.int32)
        return names[coded.indices.to_numpy(zero_copy_only=False)]


def check_ids(archive: Archive, member: str, line: int, column: pa.Array, what: str) -> None:
    """Refuse ids that are empty, negative or absurdly long or large, naming the line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        numbers = column.to_numpy()
        bad, why = (numbers < 0) | (numbers > _MAX_NUMBER), f"a whole number from 0 to {_MAX_NUMBER}"
    else:
        length = pc.utf8_length(column).to_numpy(zero_copy_only=False)
        odd = ~pc.utf8_is_printable(column).to_numpy(zero_copy_only=False)
        bad, why = (length == 0) | (length > _MAX_ID) | odd, f"1 to {_MAX_ID} printable characters"
    refuse(archive, member, line, bad, column, f"{what} must be {why}")


def check_times(archive: Archive, member: str, line: int, column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the times or positions as int64; negative ones and those beyond the year 9999 are refused."""
    times = column.to_numpy()
    refuse(archive, member, line, (times < 0) | (times > 253_402_300_799), column, "a time must be unix seconds")
    return times.astype(np.int64)


def refuse(archive: Archive, member: str, line: int, bad: npt.NDArray[np.bool_], column: pa.Array, rule: str) -> None:
    """Raise `InputError` for the first bad row of a block, quoting its value."""
    if bad.any():
        at = int(bad.argmax())
        raise archive.fault(member, line + at, f"{rule}, not '{_printable(str(column[at].as_py()), 80)}'")
