"""This opens files that people bring, where they lie or in a zip, unpacks them as a stream, and bounds them.

Owns: opening bytes safely, and one error for whatever a damaged file raises. Does not own: what is in them (`table`).
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from edgefr.data.files.arrow import pa
from privacy.errors import InputError

BLOCK = 1 << 22  # bytes of text parsed at once; no row is longer
_MOST_BYTES = 1 << 36  # of one unpacked file
_MOST_RATIO = 200  # unpacked to packed, above 64 MB: tables of interactions stay under 20
_SMALL = 1 << 26
PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".zip": "zip"}
"""How files are packed, by the end of their name."""


@contextmanager
def faults(name: str) -> Iterator[None]:
    """Turn what a damaged file raises into one `InputError` that begins with `name`."""
    try:
        yield
    except InputError:
        raise
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeError, OverflowError) as error:
        raise InputError(f"{name}: {printable(str(error), 200) or 'damaged or unreadable'}") from error


def printable(text: str, most: int = 120) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text[: 4 * most].split()))[:most]


def bare(path: Path) -> str:
    """Return a file's name without the end that says how it is packed, in lower case.

    >>> bare(Path("Ratings.CSV.gz"))
    'ratings.csv'
    """
    name = path.name.lower()
    return name[: -len(path.suffix)] if path.suffix.lower() in PACKED else name


class Bounded(io.RawIOBase):
    def __init__(self, stream: BinaryIO, packed: int, name: str):
        self._stream, self._name, self._read = stream, name, 0
        self._most = min(_MOST_BYTES, max(_SMALL, _MOST_RATIO * packed))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        content = self._stream.read(len(cast(memoryview, buffer)))
        self._read += len(content)
        if self._read > self._most:
            raise InputError(f"{self._name}: it unpacks to more than {self._most:,} bytes, which no honest file does")
        cast(memoryview, buffer)[: len(content)] = content
        return len(content)


@contextmanager
def stream(path: Path) -> Iterator[BinaryIO]:
    with faults(str(path)), _unpacked(path) as unpacked:
        yield cast(BinaryIO, io.BufferedReader(Bounded(unpacked, size_of(path), str(path))))


@contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file, also one in a zip, unpacked as a stream. Raises `InputError` for a zip of several."""
    packing, found = PACKED.get(path.suffix.lower()), _in_zip(path)
    if found is None and packing != "zip":
        with path.open("rb") as raw, pa.input_stream(raw, compression=packing) as unpacked:
            yield cast(BinaryIO, unpacked)
        return
    zipped, member = found or (path, None)
    with _zip(zipped) as archive:
        if member is None:
            files = _members(archive)
            if len(files) != 1:
                raise InputError(f"{path}: it has {len(files):,} files; call it without .{bare(path).split('.')[-1]}")
            member = files[0].filename
        if packing == "zip" and found is not None:
            raise InputError(f"{path}: a zip within a zip is not read; unpack it")
        with archive.open(member) as inner:
            if packing == "zip" or packing is None:
                yield cast(BinaryIO, inner)
            else:
                with pa.input_stream(inner, compression=packing) as unpacked:
                    yield cast(BinaryIO, unpacked)


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip; what a damaged one raises is one `InputError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not a whole zip: {printable(str(error), 200)}") from error
    except (zlib.error, NotImplementedError, RuntimeError, KeyError) as error:
        raise InputError(f"{path}: {printable(str(error), 200)}") from error


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    return [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]


def _in_zip(path: Path) -> tuple[Path, str] | None:
    """Return the zip that a path leads into and the name of the file in it, None for another path."""
    for above in path.parents:
        if above.suffix.lower() == ".zip" and os.path.isfile(above):
            return above, path.relative_to(above).as_posix()
    return None


def files_of(folder: Path) -> list[Path]:
    with faults(str(folder)):
        if not os.path.isfile(folder):
            return sorted(path for path in folder.iterdir() if path.is_file())
        with _zip(folder) as archive:
            names = (one.filename for one in _members(archive))
            inside = (folder / name for name in names if ".." not in name.split("/"))
            return sorted(path for path in inside if path.is_relative_to(folder))


def on_disk(path: Path) -> Path:
    """Return the file itself, or the zip that it is in."""
    found = _in_zip(path)
    return path if found is None else found[0]


def is_there(path: Path) -> bool:
    found = _in_zip(path)
    if found is None:
        return os.path.isfile(path)
    with _zip(found[0]) as archive:
        return found[1] in archive.namelist()


def size_of(path: Path) -> int:
    found = _in_zip(path)
    if found is None:
        return os.path.getsize(path)
    with _zip(found[0]) as archive:
        info = archive.getinfo(found[1])
        return min(info.file_size, info.compress_size)
