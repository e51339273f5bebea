"""Things that are slow to make are kept in the cache folder, each as one file behind its own digest."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from edge.records import Inside
from export.identity import identity
from export.staged_files import Staging
from privacy.errors import InputError
from privacy.files import cache_dir, sha256_of, write_atomic

LARGEST = 64 * 2**20
"""Bytes of the largest thing that is kept; a teacher's graphs are made when they are needed, which is seldom."""
MOST = 2**30
"""Bytes of all that is kept in a folder: each version of our code makes things of its own, and asks for no other's."""

_SIZE = struct.Struct("<q")
_INSIDE: TypeAdapter[str] = TypeAdapter(Inside)


def read(path: Path) -> bytes | None:
    """Return what `keep` wrote there; None where nothing is, or what is there was damaged or may be another's."""
    with suppress(OSError), path.open("rb") as file:
        whole = file.read() if _is_ours(os.fstat(file.fileno())) else b""
        own, content = whole[:32], whole[32:]
        if hashlib.sha256(content).digest() == own:
            with suppress(OSError):
                os.utime(path)  # so that it is among the last to go
            return content
    return None


def _is_ours(found: os.stat_result) -> bool:
    """Say whether a file is this user's, and nobody else may write it: what it holds is shipped unseen."""
    if os.name != "posix":
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def keep(path: Path, content: bytes) -> None:
    """Write content behind its digest, unless it is too large or nothing can be written: it is then made each time.

    What was used least recently beside it goes, beyond `MOST` bytes; who was about to read that makes it again.
    """
    if len(content) <= LARGEST:
        with suppress(InputError, OSError):
            write_atomic(path, hashlib.sha256(content).digest() + content)
            _make_room(path.parent)


def _make_room(folder: Path) -> None:
    found: list[tuple[int, int, Path]] = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process has deleted it
            said = path.stat()
            found.append((said.st_mtime_ns, said.st_size, path))
    room = MOST
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            with suppress(OSError):
                path.unlink()


def checked(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make graphs, by functions that trace and check them, once: those of the same arguments and code are read again.

    What has no identity (`export.identity`), a plug-in's program for one, is made each time.
    """

    @wraps(make)
    def once(*given: Any) -> Any:
        said = identity(make, given)
        if said is None:
            return make(*given)
        return graph_at(f"checked/{said[:32]}", lambda: make(*given))

    return once


def graph_at(name: str, make: Callable[[], Any]) -> Any:
    """Return the ONNX model that is kept by this name; where there is none, or it was damaged, it is made and kept."""
    import onnx

    path = cache_dir() / f"{name}.onnx"
    content = read(path)
    if content is not None:
        return onnx.load_model_from_string(content)
    model = make()
    keep(path, model.SerializeToString(deterministic=True))
    return model


def staged_once(stage: Staging, made_of: Any, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the record that `make` returns, and stage the files that it stages; both are read where they are kept.

    `made_of` is all that they depend on, beside our code and the packages. What has no identity is made each time.
    """
    said = identity(make.__qualname__, made_of)
    if said is None:
        return make()
    path = cache_dir() / "encoders" / said[:32]
    content = read(path)
    if content is None:
        before = set(stage.files)
        record = make()
        files = [file for name, file in stage.files.items() if name not in before]
        keep(path, _packed(record, [(f.path, f.role, (stage.root / f.path).read_bytes()) for f in files]))
        return record
    head, rest = _unpacked(content)
    for name, role, size in head["files"]:
        try:
            _INSIDE.validate_python(name)
        except ValidationError as error:
            raise InputError(f"{path} is no encoder that was kept there: it names {name!r}; remove it") from error
        stage.add(name, role, bytes(rest[:size]))
        rest = rest[size:]
    found: dict[str, Any] = head["record"]
    return found


def digests(folder: Path) -> list[tuple[str, str]]:
    """Return name and digest of every file in a folder of an encoder; its report, which has seconds in it, aside."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "report.json")
    return [(path.name, sha256_of(path)) for path in files]


def _packed(record: Mapping[str, Any], files: Sequence[tuple[str, str, bytes]]) -> bytes:
    head = json.dumps(
        {"record": record, "files": [(name, role, len(content)) for name, role, content in files]}
    ).encode()
    return b"".join([_SIZE.pack(len(head)), head, *(content for _, _, content in files)])


def _unpacked(content: bytes) -> tuple[dict[str, Any], memoryview]:
    (size,) = _SIZE.unpack_from(content)
    return json.loads(content[_SIZE.size : _SIZE.size + size]), memoryview(content)[_SIZE.size + size :]
