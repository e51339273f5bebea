"""Checkpoints: the state of a run at the end of a round, whole or not at all, the newest two kept.

A state is a tree of dicts and lists with numbers, strings, arrays and tensors at its ends. A checkpoint is a folder
`round-<n>` with `arrays.safetensors` and `state.json`; the latter holds the checksum of the former and its own. In the
tree an array is `{"$array": "<its number>"}`: names are never made of keys, so no two arrays can share one.
Clients' private tensors are among them, so their owner alone may read them. Owns: files. Does not own: what belongs to
a state (each part of a run says so itself).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from privacy.errors import InputError
from privacy.files import packed
from privacy.machine import flush_folder

ARRAYS, STATE, KEPT = "arrays.safetensors", "state.json", 2
_ARRAY = "$array"
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, SafetensorError)
"""What reading anything but a whole checkpoint can raise."""


@dataclass(frozen=True)
class Checkpoint:
    """This is a state that was read back: `rounds` rounds were done."""

    rounds: int
    state: dict[str, Any]


def write(folder: Path, rounds: int, state: dict[str, Any], belongs_to: str) -> None:
    """Save a state beside the others and drop the oldest; `belongs_to` is the digest of the experiment and its data.

    The folder is written under another name, flushed to disk, and renamed. Raises `InputError` for a full disk, and
    `TypeError` for a state that would not be read back as it is (keys that are not text).
    """
    arrays: list[np.ndarray] = []
    values = _pack(state, arrays)
    data = packed({str(number): array for number, array in enumerate(arrays)})
    body = {"rounds": rounds, "belongs_to": belongs_to, "arrays": hashlib.sha256(data).hexdigest(), "state": values}
    text = json.dumps(body)
    signed = json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}).encode()
    final, beside = folder / f"round-{rounds:08d}", folder / f".round-{rounds:08d}.part"
    try:
        _place(beside, final, {ARRAYS: data, STATE: signed})
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise InputError(
            f"cannot write checkpoint {final}: {error.strerror or error}; fix that and continue with --resume"
        ) from error
    # Rounds beyond this one were damaged, or the run would have gone on from them: they may not crowd out whole ones.
    numbers = _saved(folder)
    keep = [number for number in numbers if number <= rounds][-KEPT:]
    for number in numbers:
        if number not in keep:
            shutil.rmtree(numbers[number], ignore_errors=True)


def _place(beside: Path, final: Path, files: dict[str, bytes]) -> None:
    """Write the files into `beside`, flush them, and rename it to `final`."""
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(mode=0o700, parents=True)
    for name, data in files.items():
        with open(beside / name, "wb", opener=partial(os.open, mode=0o600)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    flush_folder(beside)
    shutil.rmtree(final, ignore_errors=True)
    os.rename(beside, final)
    flush_folder(final.parent)


def newest(folder: Path, belongs_to: str, warn: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None if there is none.

    A damaged one is passed over with a warning.

    Raises `InputError` for a checkpoint of another experiment or other data.
    """
    paths = list(_saved(folder).values())
    for path in reversed(paths):
        try:
            found, owner = _read(path)
        except _DAMAGE as error:
            warn(f"checkpoint {path} is damaged ({error}); going on from the one before")
            continue
        if owner != belongs_to:
            raise InputError(
                f"checkpoint {path} belongs to another experiment, fleet or data set; resume with the files and data "
                "that the run was started with"
            )
        return found
    if paths:
        warn(f"no checkpoint in {folder} is whole; starting from the beginning")
    return None


def digest(*parts: str | np.ndarray) -> str:
    """One digest of texts and arrays, to tell experiments apart."""
    out = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        out.update(hashlib.sha256(data).digest())
    return out.hexdigest()


def _saved(folder: Path) -> dict[int, Path]:
    named = ((re.fullmatch(r"round-(\d{8,12})", path.name), path) for path in folder.glob("round-*"))
    return dict(sorted((int(match[1]), path) for match, path in named if match))


def _read(path: Path) -> tuple[Checkpoint, str]:
    outer = json.loads((path / STATE).read_bytes())
    text = outer["body"]
    if hashlib.sha256(text.encode()).hexdigest() != outer["sha256"]:
        raise ValueError(f"{STATE} does not match its checksum")
    body, data = json.loads(text), (path / ARRAYS).read_bytes()
    if hashlib.sha256(data).hexdigest() != body["arrays"]:
        raise ValueError(f"{ARRAYS} does not match its checksum")
    state = _unpack(body["state"], load(data))
    if not isinstance(state, dict):
        raise ValueError(f"{STATE} holds no state")
    return Checkpoint(int(body["rounds"]), state), str(body["belongs_to"])


def _pack(node: Any, arrays: list[np.ndarray]) -> Any:
    """Return the tree as JSON values; arrays are put aside, and their numbers take their places."""
    from torch import Tensor

    if isinstance(node, Tensor):
        node = node.detach().cpu().numpy()
    if isinstance(node, np.ndarray):
        arrays.append(np.ascontiguousarray(node).reshape(node.shape))
        return {_ARRAY: str(len(arrays) - 1)}
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str) or key == _ARRAY:
                raise TypeError(f"a key of a state is text other than {_ARRAY}, got {key!r}")
        return {key: _pack(value, arrays) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_pack(value, arrays) for value in node]
    return node


def _unpack(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(node, dict):
        if node.keys() == {_ARRAY}:
            return arrays[node[_ARRAY]]
        return {key: _unpack(value, arrays) for key, value in node.items()}
    return [_unpack(value, arrays) for value in node] if isinstance(node, list) else node
