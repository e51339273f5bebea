"""A file is checked as it is loaded: what has this digest is what is used, whoever swaps the file in between."""

from __future__ import annotations

import errno
import hashlib
import math
import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

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


def short(path: str | Path, most: int) -> bytes:
    """Return a file's bytes. Raises ValueError for more than `most`; OSError."""
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most:,} bytes")
    return content


def mapped(path: Path, entry: File | None = None) -> bytes | mmap.mmap:
    """Map a file, whose bytes are read as they are used; InputError as `read`.

    Another file of its name is not seen from then on. Who writes into this one, changes what is mapped.
    """
    with path.open("rb") as file:
        _same(path, entry, file.seek(0, 2))
        file.seek(0)
        if entry is not None and hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise changed(path)
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, 2) else b""
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise MemoryError from error
            raise


def _same(path: Path, entry: File | None, size: int) -> None:
    if entry is not None and size != entry.size:
        raise changed(path)


def changed(path: Path) -> InputError:
    """Return what is said of a file that is another than the one that was checked."""
    return InputError(f"{path} was changed after it was checked; copy or export the bundle again")


START = b"\x93NUMPY\x01\x00"  # format 1.0
HEADER = re.compile(
    rb"\{'descr': '(\|i1|<f2|<f4|<f8|<i4|<i8)', 'fortran_order': False, "
    rb"'shape': \((\d{1,12}),(?: (\d{1,12}))?\), \} {0,256}\n"
)
HEADER_LIMIT = 512  # bytes


def mapped_array(path: Path, entry: File | None = None) -> npt.NDArray[Any]:
    """Return the array of a .npy file of one or two dimensions, read as it is used; `entry` as in `mapped`.

    numpy's own reader evaluates a header of any length and depth, and does not ask whether the file is that long.
    Raises ValueError for another header than numpy's of plain numbers, and for a file of other bytes; OSError.
    """
    content, begin = mapped(path, entry), len(START) + 2
    head, size = content[:begin], len(content)
    length = int.from_bytes(head[len(START) :], "little")
    if len(head) < begin or not head.startswith(START) or length > HEADER_LIMIT:
        raise ValueError("it does not begin as a .npy file of format 1.0")
    found = HEADER.fullmatch(content[begin : begin + length])
    if found is None:
        raise ValueError("its header is not that of plain numbers in one or two dimensions")
    dtype = np.dtype(found[1].decode())
    shape = tuple(int(n) for n in found.groups()[1:] if n is not None)
    offset = begin + length
    if size != offset + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"it has {size:,} bytes, not those of {dtype} {list(shape)}")
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.frombuffer(content, dtype, math.prod(shape), offset).reshape(shape)


def exactly(
    path: Path, what: str, dtype: npt.DTypeLike, shape: tuple[int, ...], entry: File | None = None
) -> npt.NDArray[Any]:
    """Map a .npy file of exactly this type and shape. Raises `InputError`, which calls it `what`, for any other."""
    try:
        array = mapped_array(path, entry)
    except InputError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(f"{what} is not a .npy array ({error}); export again") from error
    if array.shape != shape or array.dtype != dtype:
        got = f"{array.dtype} {list(array.shape)}"
        raise InputError(f"{what} is {got} instead of {np.dtype(dtype)} {list(shape)}")
    return array
