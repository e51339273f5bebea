"""This writes files that are either wholly there or not there at all."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError
from privacy.machine import flush_folder


def cache_dir() -> Path:
    """Return the folder of what is slow to make, kept by digest: EDGEFR_CACHE, or edgefr in the user's cache."""
    chosen = os.environ.get("EDGEFR_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgefr"


def write_atomic(path: str | Path, content: bytes | str | Callable[[BinaryIO], object], mode: int = 0o644) -> Path:
    """Write `content` beside `path`, flush it to the disk, rename it into place, and flush the folder.

    A kill or a full disk at any moment leaves the old file as it was. `content` is bytes, text, or a function
    that writes to the open binary file it is given. `mode`: who may read it (0o600: the owner alone, at no
    moment anyone else). Raises `InputError` when the disk is full or not writable.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as d:
    ...     write_atomic(pathlib.Path(d) / "a" / "note.txt", "hello").read_text(encoding="utf-8")
    'hello'
    """
    path = Path(path)
    temporary: str | None = None
    try:
        path.parent.mkdir(0o777 if mode & 0o077 else 0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    flush_folder(path.parent)
    return path


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Make a folder beside `target`, deleted at the end unless it was renamed. Raises `InputError` where it cannot."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}; nothing was changed") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def share(finished: Path, path: Path) -> None:
    """This puts a finished file at `path` too: the same bytes on the disk, or a copy where there are no links.

    Whoever writes either anew by `write_atomic` leaves the other as it is, and a copied folder has files of its own.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(finished, path)
    except OSError:
        with open(finished, "rb") as whole:
            write_atomic(path, partial(shutil.copyfileobj, whole))
    else:
        flush_folder(path.parent)


def settle(folder: Path, target: Path) -> None:
    """Rename a finished folder of `beside` into place, where nothing may be. Raises `InputError`."""
    try:
        os.chmod(folder, 0o755)
        os.rename(folder, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}; nothing was changed") from error
    flush_folder(target.parent)


def write_json(path: str | Path, value: Any, mode: int = 0o644) -> Path:
    """Write `value` as indented JSON by `write_atomic`. NaN is refused; keys keep their order."""
    return write_atomic(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n", mode)


def packed(arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, str] | None = None) -> bytes:
    """Return arrays by name as a safetensors file, with `facts` in its header.

    The library takes for granted that arrays lie in memory row after row, and would write others with their values in
    another order; here they are copied first. Raises `MemoryError` where there is no room: the library's own code would
    end without a word that Python understands.

    >>> len(packed({"x": np.arange(6.0).reshape(2, 3).T})) > 48
    True
    """
    from safetensors.numpy import save

    rows = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    np.empty(3 * sum(value.nbytes for value in rows.values()) + (1 << 20), np.uint8)  # taken and left at once
    return save(rows, dict(facts) if facts else None)


def sha256_of(path: str | Path) -> str:
    """Return the hex digest of a file's bytes, which are read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
