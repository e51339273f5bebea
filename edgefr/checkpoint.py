"""Checkpoints: the state of a run at the end of a round, whole or not at all, the newest two kept.

A state is a tree of dicts and lists with numbers, strings, arrays and tensors at its ends. A checkpoint is a folder
`round-<n>` with `arrays.safetensors` and `state.json`; the latter holds the checksum of the former and its own.
Owns: files. Does not own: what belongs to a state (each part of a run says so itself).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from privacy.errors import InputError

ARRAYS, STATE, KEPT = "arrays.safetensors", "state.json", 2
_ARRAY = "$array"


@dataclass(frozen=True)
class Checkpoint:
    """A state that was read back: `rounds` rounds were done."""

    rounds: int
    state: dict[str, Any]


def write(folder: Path, rounds: int, state: dict[str, Any], belongs_to: str) -> None:
    """Save a state beside the others and drop the oldest; `belongs_to` is the digest of the experiment and its data.

    The folder is written under another name, flushed to disk, and renamed.
    """
    arrays: dict[str, np.ndarray] = {}
    values = _pack(state, "", arrays)
    data = save(arrays)
    body = {"rounds": rounds, "belongs_to": belongs_to, "arrays": hashlib.sha256(data).hexdigest(), "state": values}
    text = json.dumps(body)
    final, beside = folder / f"round-{rounds:08d}", folder / f".round-{rounds:08d}.part"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    _flush(beside / ARRAYS, data)
    _flush(beside / STATE, json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}).encode())
    _flush_folder(beside)
    shutil.rmtree(final, ignore_errors=True)
    os.rename(beside, final)
    _flush_folder(folder)
    for old in _saved(folder)[:-KEPT]:
        shutil.rmtree(old)


def newest(folder: Path, belongs_to: str, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None if there is none. A damaged one is passed over with a warning.

    Raises `InputError` for a checkpoint of another experiment or other data.
    """
    for path in reversed(_saved(folder)):
        try:
            found, owner = _read(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            warn(f"checkpoint {path} is damaged ({error}); going on from the one before")
            continue
        if owner != belongs_to:
            raise InputError(
                f"checkpoint {path} belongs to another experiment, fleet or data set; resume with the files and data "
                "that the run was started with"
            )
        return found
    return None


def digest(*parts: str | np.ndarray) -> str:
    """One digest of texts and arrays, to tell experiments apart."""
    out = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        out.update(hashlib.sha256(data).digest())
    return out.hexdigest()


def _saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*")) if folder.is_dir() else []


def _read(path: Path) -> tuple[Checkpoint, str]:
    outer = json.loads((path / STATE).read_text())
    text = outer["body"]
    if hashlib.sha256(text.encode()).hexdigest() != outer["sha256"]:
        raise ValueError(f"{STATE} does not match its checksum")
    body, data = json.loads(text), (path / ARRAYS).read_bytes()
    if hashlib.sha256(data).hexdigest() != body["arrays"]:
        raise ValueError(f"{ARRAYS} does not match its checksum")
    return Checkpoint(int(body["rounds"]), _unpack(body["state"], load(data))), str(body["belongs_to"])


def _pack(node: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The tree as JSON values; arrays are put aside under the path to them."""
    if isinstance(node, torch.Tensor):
        node = node.detach().cpu().numpy()
    if isinstance(node, np.ndarray):
        arrays[name] = np.ascontiguousarray(node).reshape(node.shape)
        return {_ARRAY: name}
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict):
        return {key: _pack(value, f"{name}/{key}", arrays) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_pack(value, f"{name}/{number}", arrays) for number, value in enumerate(node)]
    return node


def _unpack(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(node, dict):
        if node.keys() == {_ARRAY}:
            return arrays[node[_ARRAY]]
        return {key: _unpack(value, arrays) for key, value in node.items()}
    return [_unpack(value, arrays) for value in node] if isinstance(node, list) else node


def _flush(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
