"""A machine opens its own copy of what all rounds of a stage have in common: everybody's interactions above all.

    driver: large arrays, by their digests → object store     machine: a file of that digest, fetched once → mapped

Who opens one reads it as it is used, by the users that are asked for, so that it takes no memory of its own. A file
whose digest is another is written anew. Files end with the run; what one that was killed leaves, a later one drops.

Owns: which arrays lie in files, when a file is believed. Does not own: how anything gets to a machine (`on_ray`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privacy.files import cache_dir, write_atomic

LARGE = 1 << 22
"""Bytes from which on an array lies in a file of each machine."""
OLD = 24 * 3600
"""Seconds after which a file that nobody dropped is of a run that was killed."""

Bytes = npt.NDArray[np.uint8]


def digest(content: Bytes) -> str:
    """Return what an array's file is called."""
    return hashlib.sha256(content.data).hexdigest()


def mapped(name: str, size: int, fetch: Callable[[], Bytes]) -> Bytes:
    """Return an array of so many bytes and this digest from this machine's file; `fetch` is asked where it has none.

    Raises `InputError` when the disk is full or not writable, `RuntimeError` where something else is fetched.
    """
    found = _mapped(_folder() / name, size)
    if found is not None and digest(found) == name:
        return found
    content = fetch()
    if digest(content) != name:
        raise RuntimeError(f"what was fetched is not what has the digest {name}")
    _drop_old()
    write_atomic(_folder() / name, lambda file: file.write(content.data), mode=0o600)
    written = _mapped(_folder() / name, size)
    return content if written is None else written  # None: another run on this machine has ended, and dropped it


def drop(names: Iterable[str]) -> None:
    """Drop files; who has one mapped keeps it."""
    for name in names:
        (_folder() / name).unlink(missing_ok=True)


def _folder() -> Path:
    return cache_dir() / "mapped"


def _mapped(path: Path, size: int) -> Bytes | None:
    """Map a file of exactly this size; None where there is none."""
    try:
        return np.memmap(path, np.uint8, "r") if path.stat().st_size == size else None
    except FileNotFoundError:
        return None


def _drop_old() -> None:
    """Drop what runs have left that were killed."""
    for path in [*_folder().glob("?" * 64), *_folder().glob(".*.part")]:
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > OLD:
                path.unlink()
