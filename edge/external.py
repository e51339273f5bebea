"""Weights may lie beside a graph: this finds which files an ONNX file refers to, before a runtime opens it.

An ONNX tensor may say that its bytes lie in another file, by any path it likes. The runtime maps that file into memory,
so the path is looked at first. Only the fields that can lead to a tensor are read (onnx.proto3): everything else is
skipped by its length, and nothing is copied.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from privacy.errors import InputError

# message -> field number -> message of that field, as far as tensors can be reached
FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "tensor": {13: "entry"},
}
DEEPEST = 64  # graphs within graphs


def check_external(path: Path, data: Path | None) -> None:
    """Raise `InputError` when the graph in `path` refers to a file other than `data`, which lies beside it.

    With None it may refer to no file at all. Files are named as the graph names them: a plain name in its own folder.

    >>> check_external(Path("onnx/score.onnx"), None)  # doctest: +SKIP
    """
    allowed = None if data is None else data.name
    if data is not None and data.parent != path.parent:
        raise InputError(f"{path} and its weights {data} must lie in one folder; export again")
    for name in locations(path):
        if name != allowed:
            may = "no file" if allowed is None else f"{allowed} alone"
            raise InputError(f"{path} refers to {name!r:.80}, but may refer to {may}; do not use this bundle")


def locations(path: Path) -> set[str]:
    """Return every file that tensors of the ONNX file refer to. `InputError` for a file that is not ONNX."""
    try:
        if not path.stat().st_size:
            return set()
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            return set(_locations(raw, "model", 0, len(raw), 0))
    except (IndexError, ValueError) as error:
        raise InputError(f"{path} is not an ONNX file ({error}); export again") from error


def _locations(raw: mmap.mmap, message: str, start: int, end: int, depth: int) -> Iterator[str]:
    """Yield the `location` entries of one message and of those in it."""
    if depth > DEEPEST:
        raise ValueError("graphs are nested too deeply")
    for field, begin, stop in _fields(raw, start, end):
        inner = FIELDS[message].get(field)
        if inner == "entry":
            entry = dict((f, raw[b:s]) for f, b, s in _fields(raw, begin, stop))
            if entry.get(1, b"") == b"location":
                yield entry.get(2, b"").decode(errors="replace")
        elif inner is not None:
            yield from _locations(raw, inner, begin, stop, depth + 1)


def _fields(raw: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields with bytes in them of the message at raw[start:end]: number, and where the bytes begin and end."""
    at = start
    while at < end:
        key, at = varint(raw, at)
        kind = key & 7
        if key >> 32:  # parsers differ on what such a field is
            raise ValueError("a field's number is too large")
        if kind == 0:
            _, at = varint(raw, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            size, at = varint(raw, at)
            if at + size > end:
                raise ValueError("a field is longer than the file")
            yield key >> 3, at, at + size
            at += size
        else:
            raise ValueError(f"wire type {kind}")
    if at != end:
        raise ValueError("a field is longer than its message")


def varint(raw: mmap.mmap, at: int) -> tuple[int, int]:
    """Return a whole number and where the next field starts."""
    value = shift = 0
    while shift < 70:
        byte = raw[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number has too many bytes")
