"""A file is checked as it is loaded: what has this digest is what is used, whoever swaps the file in between."""

from __future__ import annotations

import errno
import hashlib
import mmap
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.manifest import File


def read(path: Path, entry: File | None = None, most: int | None = None) -> bytes:
    """Return a file's bytes: those of its `entry` in a manifest, where it has one, and at most so many.

    Raises `InputError` for a larger file, and for one that has changed; OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if most is not None and size > most:
            raise InputError(f"{path} has {size:,} bytes, more than the {most:,} that such a file may have")
        _same(path, entry, size)
        file.seek(0)
        content = file.read(size)
    if entry is not None and hashlib.sha256(content).hexdigest() != entry.sha256:
        raise changed(path)
    return content


def mapped(path: Path, entry: File | None = None) -> bytes | mmap.mmap:
    """Map a file, whose bytes are read as they are used; InputError as `read`.

    Another file of its name is not seen from then on. Who writes into this one, changes what is mapped.
    """
    with path.open("rb") as file:
        _same(path, entry, file.seek(0, 2))
        if entry is not None and _digest(file) != entry.sha256:
            raise changed(path)
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, 2) else b""
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise MemoryError from error
            raise


def _digest(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _same(path: Path, entry: File | None, size: int) -> None:
    if entry is not None and size != entry.size:
        raise changed(path)


def changed(path: Path) -> InputError:
    """Return what is said of a file that is another than the one that was checked."""
    return InputError(f"{path} was changed after it was checked; copy or export the bundle again")
