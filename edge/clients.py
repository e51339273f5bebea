"""A client's own state is read from a bundle with users: tests compare their devices with the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from edge.bundle import Bundle
from edge.manifest_check import reason
from edge.records import Plain, Record
from edge.tensors import TensorFile, mapped
from privacy.errors import InputError, unknown

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Ids = TypeVar("Ids", bound=Record)
SHOWN = 20
TIMES = "history.times"
NAMES, NAME, ALL_NAMES = 1 << 16, 1 << 10, 1 << 28  # bytes of a file of ids: more for each item and user, and at most


def named(what: str, name: str, known: dict[str, int]) -> int:
    """Return the number of a user or item; `InputError` that shows the nearest names, or all when they are few."""
    if name in known:
        return known[name]
    if len(known) <= SHOWN:
        raise unknown(what, name, known)
    import difflib

    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    hint = "did you mean " + " or ".join(f"'{n}'" for n in near) if near else f"one of them is '{next(iter(known))}'"
    raise InputError(f"unknown {what} '{name}' (the bundle has {len(known):,} {what}s); {hint}")


@dataclass(frozen=True)
class ClientState:
    """This is what scoring reads of one client.

    Its `private` tensors by name, its items in order (`history`) and when it had each (`times`, unix seconds; empty
    where no session is read), and what it has `seen`, which is not shown again.
    """

    private: Mapping[str, Floats]
    history: Ints
    times: Ints
    seen: Ints


class Clients:
    """This is the private state of a bundle's users. User None is a new device: initial tensors, nothing seen."""

    def __init__(self, bundle: Bundle) -> None:
        config, self._bundle = bundle.config, bundle
        self.ids: list[str] = []
        self._number: dict[str, int] = {}
        self._init = read_tensors(bundle, config.init)
        if config.users is not None and config.private is not None:
            found = read_ids(bundle, config.users, UserIds)
            self.ids, self._clients = found.users, found.numbers
            if "numbers" not in found.model_fields_set:
                self._clients = list(range(len(self.ids)))
            self._number = {user: number for number, user in enumerate(self.ids)}
            self._read(config.private)

    def _read(self, private: str) -> None:
        self._path = private
        self._arrays = _tensors(self._bundle, private).arrays
        self._ragged = {name: self._offsets(name) for name in ("history", "seen")}
        for name, first in self._init.items():
            got, want = self._arrays.get(f"private.{name}"), (len(self.ids), *first.shape)
            if got is None or got.shape != want or got.dtype != np.float32:
                shown = "missing" if got is None else f"{got.dtype} {list(got.shape)}"
                raise self._fault(f"private.{name} is {shown} instead of float32 {list(want)}")

    def number(self, user: str) -> int:
        """Return the number of a user in this bundle; `InputError` with near names for one it does not have."""
        if not self.ids:
            raise InputError(
                f"bundle {self._bundle.root} carries no users, so it does not know '{user}': omit the user, ask "
                "the run (`edgefr.Run.open(RUN).recommend(user)`), or write one with `edgefr export --with-users`"
            )
        return named("user", user, self._number)

    def client(self, user: int) -> int:
        """The number that keys a user's draws in the run the bundle comes from."""
        return self._clients[user]

    def shared(self) -> dict[str, Floats]:
        return read_tensors(self._bundle, self._bundle.config.shared)

    def private(self, user: int | None) -> dict[str, Floats]:
        if user is None:
            return dict(self._init)
        return {name: self._arrays[f"private.{name}"][user].copy() for name in self._init}

    def state(self, user: int | None) -> ClientState:
        windowed = self._bundle.config.window is not None
        times = self.times(user) if windowed else np.empty(0, np.int64)
        return ClientState(self.private(user), self.items("history", user), times, self.items("seen", user))

    def items(self, name: str, user: int | None) -> Ints:
        """Return a user's items, `name` being "history" or "seen"."""
        if user is None or self._ragged[name][user] == self._ragged[name][user + 1]:
            return np.empty(0, np.int64)
        start, stop = self._ragged[name][user : user + 2]
        values = self._arrays[f"{name}.values"][int(start) : int(stop)].astype(np.int64)
        if not (values.min() >= 0 and values.max() < self._bundle.manifest.item_count):
            raise self._fault(f"{name} of user '{self.ids[user]}' has items outside the catalogue")
        return values

    def times(self, user: int | None) -> Ints:
        """Return when a user had the items of its "history", unix seconds; for bundles whose methods read sessions."""
        start, stop = (0, 0) if user is None else self._ragged["history"][user : user + 2]
        if stop == start:
            return np.empty(0, np.int64)
        whole = self._arrays.get(TIMES)
        if whole is None or whole.shape != self._arrays["history.values"].shape:
            raise self._fault(f"{TIMES} is missing or has not one moment for each of history.values")
        moments = whole[int(start) : int(stop)].copy()
        if moments.dtype != np.int64 or (np.diff(moments) < 0).any():
            raise self._fault(f"{TIMES} of user '{self.ids[user or 0]}' are no moments in order")
        return moments

    def _offsets(self, name: str) -> Ints:
        values, offsets = self._arrays.get(f"{name}.values"), self._arrays.get(f"{name}.offsets")
        if values is None or offsets is None:
            raise self._fault(f"{name}.values or {name}.offsets is missing")
        if values.dtype.kind != "i" or offsets.dtype.kind != "i":
            raise self._fault(f"{name}.values or {name}.offsets are no whole numbers")
        offsets = offsets.astype(np.int64)
        fits = offsets.shape == (len(self.ids) + 1,) and offsets[0] == 0 and (int(offsets[-1]),) == values.shape
        if not fits or (np.diff(offsets) < 0).any():
            raise self._fault(f"{name}.offsets do not cut {name}.values into {len(self.ids)} users")
        return offsets

    def _fault(self, what: str) -> InputError:
        return InputError(f"bundle {self._bundle.root}: {self._path}: {what}; export again")


def read_tensors(bundle: Bundle, path: str) -> dict[str, Floats]:
    """Read all tensors of a safetensors file, which must be float32."""
    tensors = _tensors(bundle, path).copied()
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32:
            raise InputError(f"bundle {bundle.root}: {path}: {name} is {tensor.dtype} instead of float32; export again")
    return tensors


def _tensors(bundle: Bundle, path: str) -> TensorFile:
    file = bundle.file(path)
    try:
        return mapped(file, bundle.entry(file))
    except (ValueError, RecursionError, OSError) as error:
        why = f"is not a safetensors file ({reason(error)})"
        raise InputError(f"bundle {bundle.root}: {path} {why}; export again") from error


class ItemIds(Record):
    """The file of a catalogue has ids and titles of items, and ids of those that may be recommended, if not all may."""

    ids: list[Plain]
    titles: list[Plain]
    offered: list[str] = Field(default_factory=list)


class UserIds(Record):
    """The file of a bundle's users has their ids, and what keys their draws in the run; left out: 0, 1, ..."""

    users: list[Plain]
    numbers: list[Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]] = Field(default_factory=list)


def read_ids(bundle: Bundle, path: str, kind: type[Ids], count: int | None = None) -> Ids:
    """Read a JSON file of ids, whose lists have `count` entries, but for a shorter `offered` (None: as the first).

    Raises `InputError` for anything else, and for a file too long for the bundle's items and users.
    """
    most = bundle.manifest.item_count + bundle.manifest.model.users
    try:
        found = kind.model_validate_json(bundle.read(path, min(NAMES + NAME * most, ALL_NAMES)))
    except (ValidationError, RecursionError) as error:
        raise InputError(f"bundle {bundle.root}: {path} is no file of ids ({reason(error)}); export again") from error
    lists = {name: value for name, value in found if name in found.model_fields_set and name != "offered"}
    wanted = len(next(iter(lists.values()))) if count is None else count
    for name, value in lists.items():
        if len(value) != wanted:
            raise InputError(f"bundle {bundle.root}: {path}: '{name}' has {len(value)} entries instead of {wanted}")
    return found
