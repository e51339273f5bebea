"""A safetensors file is read here by a few strict rules, wherever it comes from: what was checked is what is used.

8 bytes    size of the header, low byte first
header     JSON: {name: {dtype, shape, data_offsets}, "__metadata__": {name: text}}
the rest   the values of one tensor after another, row after row, nothing between and nothing behind
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from edge import verified_files as loaded

if TYPE_CHECKING:
    from edge.manifest import File

DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1"}
"""The types that devices know. Others, such as BF16, F8 or F4, have no number of numpy's to be read as."""

HEADER_LIMIT = 16 << 20  # bytes
MOST_TENSORS = 10_000
MOST_DIMENSIONS = 8
NAME_LIMIT = 200  # characters
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TensorFile:
    """This is what a file holds: texts by name, and arrays by name that only look at its bytes."""

    metadata: Mapping[str, str]
    arrays: Mapping[str, Array]

    def copied(self) -> dict[str, Array]:
        """Return arrays of their own, which may be changed."""
        return {name: array.copy() for name, array in self.arrays.items()}


def parse(
    content: bytes | mmap.mmap, header_limit: int = HEADER_LIMIT, dtypes: Iterable[str] = tuple(DTYPES)
) -> TensorFile:
    """Return the tensors in these bytes; ValueError for anything but a plain safetensors file of these types.

    >>> parse(b"\\x02" + bytes(7) + b"{}").arrays
    {}
    """
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(header_limit, len(content) - 8):
        raise ValueError(f"its header says it has {size:,} bytes, in a file of {len(content):,}")
    header = json.loads(content[8 : 8 + size].decode("utf-8"), object_pairs_hook=_once)
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        raise ValueError("its header has no metadata and tensors by name")
    metadata = header.pop("__metadata__", {})
    if not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata are not texts by name")
    if len(header) > MOST_TENSORS:
        raise ValueError(f"it has more than {MOST_TENSORS:,} tensors")
    spans = {name: _span(name, entry, tuple(dtypes)) for name, entry in header.items()}
    at = 0
    for name, (start, stop, _, _) in sorted(spans.items(), key=lambda each: each[1][:2]):
        if start != at:
            raise ValueError(f"the values of {name!r} do not follow those before it")
        at = stop
    if at != len(content) - 8 - size:
        raise ValueError(f"its tensors have {at:,} bytes, the file has {len(content) - 8 - size:,} for them")
    begin = 8 + size
    arrays = {
        name: np.frombuffer(content, dtype, math.prod(shape), begin + start).reshape(shape)
        if math.prod(shape)
        else np.empty(shape, dtype)
        for name, (start, _, dtype, shape) in spans.items()
    }
    return TensorFile(metadata, arrays)


def mapped(path: Path, entry: File | None = None) -> TensorFile:
    """Return the tensors of a file without reading their values yet; ValueError as `parse`, else as `loaded.mapped`."""
    return parse(loaded.mapped(path, entry))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header gives a name twice")
    return found


def _span(name: str, entry: dict[str, Any], dtypes: tuple[str, ...]) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    """Return where a tensor's bytes begin and end, its type and shape; ValueError that names it."""
    shown = f"{name[:NAME_LIMIT]!r}"
    if not 0 < len(name) <= NAME_LIMIT or not name.isprintable():
        raise ValueError(f"tensor name {shown} is too long or not plain")
    kind, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(kind, str) or kind not in dtypes:
        raise ValueError(f"{shown} is {str(kind)[:16]!r} instead of {' or '.join(dtypes)}")
    if len(entry) != 3 or not _whole(shape) or not _whole(offsets) or len(offsets) != 2:
        raise ValueError(f"{shown} has no plain dtype, shape and data_offsets")
    dtype = np.dtype(DTYPES[kind])
    if len(shape) > MOST_DIMENSIONS or max(shape, default=0) >> 40 or math.prod(shape) >> 48:
        raise ValueError(f"{shown} has a shape of no tensor")
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{shown} of shape {shape} does not have {offsets[1] - offsets[0]:,} bytes")
    return offsets[0], offsets[1], dtype, tuple(shape)


def _whole(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)
