"""A .npy file is mapped here, of the few kinds that a bundle has.

numpy's own reader evaluates the header as Python's literals, of a length and a depth that the file chooses, and maps
what it says without asking whether the file is that long. A bundle's headers have one form, so they are read as that.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge import verified_files as loaded
from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.manifest import File

START = b"\x93NUMPY\x01\x00"  # format 1.0
HEADER = re.compile(
    rb"\{'descr': '(\|i1|<f2|<f4|<f8|<i4|<i8)', 'fortran_order': False, "
    rb"'shape': \((\d{1,12}),(?: (\d{1,12}))?\), \} {0,256}\n"
)
HEADER_LIMIT = 512  # bytes


def mapped(path: Path, entry: File | None = None) -> npt.NDArray[Any]:
    """Return the array of a .npy file of one or two dimensions, read as it is used; `entry` as `edge.verified_files`.

    Raises ValueError for another header than numpy's of plain numbers, and for a file of other bytes than it says;
    OSError.
    """
    content, begin = loaded.mapped(path, entry), len(START) + 2
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
        array = mapped(path, entry)
    except InputError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(f"{what} is not a .npy array ({error}); export again") from error
    if array.shape != shape or array.dtype != dtype:
        got = f"{array.dtype} {list(array.shape)}"
        raise InputError(f"{what} is {got} instead of {np.dtype(dtype)} {list(shape)}")
    return array
