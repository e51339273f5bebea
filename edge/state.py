"""A device's private state on its disk: one file, wholly there or not at all, whatever happens to the process.

state.safetensors      everything: tensors by name, and the facts as JSON in its header
previous.safetensors   the same before the last update of the server was applied
earlier.safetensors    the same under the bundle before, until the device has learned under this one
ledger.safetensors     its ledger once more, written ahead: what was released is known where the state is damaged
lock                   held by the one process that may change the state
seen.json              beside it, with a lock of its own (`edge.rollback`)
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge.manifest_check import reason
from edge.tensors import parse
from privacy.errors import InputError
from privacy.files import packed, write_atomic
from privacy.machine import hold

SCHEMA: Literal["edgefr.state/2"] = "edgefr.state/2"
STATE, PREVIOUS, EARLIER = "state.safetensors", "previous.safetensors", "earlier.safetensors"
BEGUN = "begun"
"""Fact of a state: the round that was charged and whose release is not there yet."""
LEDGER, LOCK, SEEN = "ledger.safetensors", "lock", "seen.json"
Array = npt.NDArray[Any]


class Damaged(InputError):
    """A file of the state cannot be read, or is not what was written."""


@dataclass
class State:
    """A device keeps this: plain `facts` (JSON values) and `tensors` by name."""

    facts: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, Array]:
        """The tensors whose names start with `prefix` and a dot, without it."""
        return {n.removeprefix(f"{prefix}."): v for n, v in self.tensors.items() if n.startswith(f"{prefix}.")}

    def put(self, prefix: str, tensors: Mapping[str, Array]) -> None:
        """Put tensors under `prefix`; others there stay."""
        self.tensors |= {f"{prefix}.{name}": value for name, value in tensors.items()}

    def drop(self, prefix: str) -> None:
        self.tensors = {name: value for name, value in self.tensors.items() if not name.startswith(f"{prefix}.")}

    def digest(self) -> str:
        whole = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode())
        for name in sorted(self.tensors):
            value = np.asarray(self.tensors[name], order="C")
            whole.update(f"{name} {value.dtype.str} {value.shape}".encode())
            whole.update(value.tobytes())
        return whole.hexdigest()


class Store:
    """This is the folder of one device's state.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     with store.locked():
    ...         store.write(State({"round": 3}, {"private.user": np.zeros(2, np.float32)}))
    ...     store.read().facts["round"]
    3
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def exists(self) -> bool:
        """Say whether a state is there, or was: its ledger is left."""
        return any((self.folder / name).exists() for name in (STATE, LEDGER))

    def read(self, name: str = STATE) -> State:
        """Return the state; `InputError` when it is not one, or has been damaged.

        What was released counts though the state is an older one: a longer ledger beside it is its ledger.
        """
        path = self.folder / name
        try:
            content = path.read_bytes()
            file = parse(content)
            header = json.loads(file.metadata["state"])
            found = State(header["facts"], file.copied())
            if header["schema"] != SCHEMA:
                raise ValueError(f"it is {header['schema']} instead of {SCHEMA}")
            if found.digest() != header["sha256"]:
                raise ValueError("its digest does not match")
        except OSError as error:
            raise Damaged(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            other = f"; {PREVIOUS} beside it is the state before the last update" if name == STATE else ""
            raise Damaged(f"{path} is not a device's state: {reason(error)}{other}") from error
        if name == STATE:
            self._take_ledger(found)
        return found

    def _take_ledger(self, state: State) -> None:
        """Put the ledger beside the state in place of its own where that goes on from it: the state was put back."""
        try:
            beside = self.read(LEDGER).tensors
        except InputError:
            return
        own = {name: value for name, value in state.tensors.items() if name.startswith("ledger.")}
        if own.keys() == beside.keys() and all(np.array_equal(beside[n][: len(own[n])], own[n]) for n in own):
            state.tensors |= beside

    def write(self, state: State, keep_previous: bool = False) -> None:
        """Put `state` in place of what is there, at once; with `keep_previous` that stays as previous.safetensors.

        A ledger that has grown is written after it, so that only a state that was put back is behind its ledger.
        """
        content = _packed(state)
        if keep_previous and (self.folder / STATE).exists():
            write_atomic(self.folder / PREVIOUS, (self.folder / STATE).read_bytes(), mode=0o600)
        write_atomic(self.folder / STATE, content, mode=0o600)
        self.write_ledger(state)

    def write_ledger(self, state: State) -> None:
        """Put the ledger of a state beside it, where it is not there yet: before this, no release may be handed out."""
        ledger = State({"bundle": state.facts.get("bundle")})
        ledger.put("ledger", state.part("ledger"))
        if any(len(column) for column in ledger.tensors.values()) and not self._has(ledger):
            write_atomic(self.folder / LEDGER, _packed(ledger), mode=0o600)

    def set_aside(self) -> None:
        """Keep what is there as earlier.safetensors, until `settle`."""
        write_atomic(self.folder / EARLIER, (self.folder / STATE).read_bytes(), mode=0o600)

    def settle(self) -> None:
        """Forget what was set aside."""
        (self.folder / EARLIER).unlink(missing_ok=True)

    @property
    def settled(self) -> bool:
        """Say whether nothing is set aside: the device has learned under its bundle."""
        return not (self.folder / EARLIER).exists()

    def _has(self, ledger: State) -> bool:
        try:
            return self.read(LEDGER).digest() == ledger.digest()
        except InputError:
            return False

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from changing this state while inside; `InputError` when one is at it."""
        return held(self.folder, LOCK)


@contextmanager
def held(folder: Path, lock: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold a lock in the folder of a device's state; `InputError` when another process has it for longer."""
    until = time.monotonic() + wait_s
    while True:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = hold(folder / lock)
            break
        except BlockingIOError as error:
            if time.monotonic() >= until:
                what = f"{folder / lock} is in use by another process"
                raise InputError(f"{what}; wait for it, or give another --state") from error
            time.sleep(0.01)
        except OSError as error:
            raise InputError(f"cannot use {folder} for state: {error.strerror or error}") from error
    try:
        for left in folder.glob(".*.part"):  # of a process that was killed while it wrote what this lock is for
            if left.name.startswith(f".{SEEN}.") == (lock != LOCK):
                left.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):
            os.close(handle)


def _packed(state: State) -> bytes:
    header = {"schema": SCHEMA, "facts": state.facts, "sha256": state.digest()}
    return packed(state.tensors, {"state": json.dumps(header)})


def undo(store: Store, own: str) -> None:
    """Put the state before the last update in place of the one of bundle `own`; the caller holds the lock.

    Where there was no update under this bundle, it is the state under the one before, which brings nothing with it but
    the ledger. Raises `InputError` when there is neither, and where nobody knows what was released.
    """
    if not store.settled and not _is_of(store, PREVIOUS, own):
        before = store.read(EARLIER)
        if before.facts.get("bundle") != own:
            _with(before, _now(store, own)[0], ["ledger"])
            store.write(before)
            store.settle()
            return
    before = store.read(PREVIOUS)
    if before.facts.get("bundle") != own:
        raise InputError("there is no update of this bundle to go back from; what was before is another bundle's")
    now, kept = _now(store, own)
    _with(before, now, kept)
    before.facts["block"] = now.facts.get("block", before.facts["block"])
    store.write(before)


def _is_of(store: Store, name: str, own: str) -> bool:
    try:
        return bool(store.read(name).facts.get("bundle") == own)
    except Damaged:
        return False


def _with(before: State, now: State, parts: list[str]) -> None:
    before.facts.pop(BEGUN, None)
    for part in parts:
        before.drop(part)
        before.put(part, now.part(part))


def _now(store: Store, own: str) -> tuple[State, list[str]]:
    """Return the state, and what of it stays; of a damaged one the ledger beside it."""
    try:
        found = store.read()
    except Damaged:
        with suppress(InputError):
            ledger = store.read(LEDGER)
            if ledger.facts.get("bundle") == own:
                return ledger, ["ledger"]
        raise InputError(
            f"{store.folder}: the state is damaged, and so is its ledger: what was released can no longer be "
            "counted, so nothing more may be; give a new --state"
        ) from None
    if found.facts.get("bundle") != own:
        raise InputError(f"{store.folder} is the state of another bundle; open it with that one; nothing was changed")
    return found, ["items", "session", "memory", "ledger"]
