"""A trained model is one value, which evaluation, export, audit and serving take, whoever trained it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from edge.clients import ClientState
from edge.ragged import Ragged
from edge.sessions import Windows, window_of
from export.program import LocalProgram
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]


class Rows(Protocol):
    """Users' items are held as one column: user u owns `values[offsets[u]:offsets[u + 1]]`."""

    @property
    def values(self) -> npt.NDArray[Any]:
        """Return item numbers, [all]."""
        ...

    @property
    def offsets(self) -> npt.NDArray[Any]:
        """Return where each user's items start, [users + 1]."""
        ...


class OwnRows(Protocol):
    """This is a `rows` tensor that differs from client to client, of which nobody holds the whole."""

    def rows(self, clients: Ints, items: Ints) -> Tensor:
        """Return the row of each (client, item) pair: float32 [n, width], on the host."""
        ...


@dataclass(frozen=True)
class HeldOut:
    """One item that each of these users did not train on: the run's validation items. int64 [n] both."""

    users: Ints
    items: Ints


@dataclass(frozen=True)
class Names:
    """These are ids of users and items, the items' titles, and `texts` that encoders read (None: the titles)."""

    users: Sequence[str]
    items: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str] | None = None

    @property
    def read(self) -> Sequence[str]:
        """Return what encoders read of each item."""
        return self.titles if self.texts is None else self.texts


@dataclass(frozen=True)
class TrainedModel:
    """A trained model is a local program with the tensors that training left, and what is known of its users and items.

    `shared` are whole tensors, `private` [U, ...] per user of `names.users`; clients without personal layers lack
    those tensors. `tables`: rows tensors that differ from client to client, by name. `own`: what users learned from
    last, `seen`: what is not recommended to them again. `history`: past positives that the program reads (None: it
    reads none); of programs that read sessions each user's newest one in order, and `times` its moments in unix
    seconds, rows alike. `pool`: items that may be recommended (None: all), where others are in the catalogue only
    because they are in users' histories. `numbers` key the users' draws in the run (None: 0, 1, ...).
    """

    program: LocalProgram
    shared: Mapping[str, Tensor]
    private: Mapping[str, Tensor]
    names: Names
    seen: Rows
    own: Rows | None = None
    history: Rows | None = None
    times: Rows | None = None
    pool: Sequence[int] | None = None
    held_out: HeldOut | None = None
    numbers: Sequence[int] | None = None
    tables: Mapping[str, OwnRows] = field(default_factory=dict)

    @property
    def offered(self) -> Ints:
        """Return the items that may be recommended, int64 [n]."""
        return np.arange(len(self.names.items)) if self.pool is None else np.asarray(self.pool, np.int64)

    def number(self, user: int) -> int:
        """Return what keys one user's draws in the run."""
        return user if self.numbers is None else int(self.numbers[user])

    def past(self, user: int) -> Ints:
        """Return the past positives of one user (none when the method reads none)."""
        return np.empty(0, np.int64) if self.history is None else _row(self.history, user)

    def window(self, user: int, length: int) -> Windows:
        """Return the newest items of one user, of its session where it has one."""
        past = self.past(user)
        return window_of(past, np.zeros_like(past) if self.times is None else _row(self.times, user), length)

    def left_out(self, user: int) -> Ints:
        """Return what one user has seen."""
        return _row(self.seen, user)

    def tensors(self, user: int) -> dict[str, Tensor]:
        return {name: tensor[user].float() for name, tensor in self.private.items()}

    def state(self, user: int) -> ClientState:
        """Return one user as a device's code takes it."""
        private = {name: as_float32(tensor[user]) for name, tensor in self.private.items()}
        times = np.empty(0, np.int64) if self.times is None else _row(self.times, user)
        return ClientState(private, self.past(user), times, self.left_out(user))

    def columns(self, chosen: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
        """Return what private/users.safetensors holds for these users: tensors by name, and two ragged columns."""
        numbers = np.asarray(chosen, dtype=np.int64)
        columns: dict[str, npt.NDArray[Any]] = {
            f"private.{name}": as_float32(tensor[numbers]) for name, tensor in self.private.items()
        }
        for name, rows in (("history", self.history), ("seen", self.seen)):
            own = Ragged.empty(len(numbers)) if rows is None else _ragged(rows).take(numbers)
            columns |= {f"{name}.values": own.values.astype(np.int32), f"{name}.offsets": own.offsets}
        if self.times is not None:
            columns["history.times"] = _ragged(self.times).take(numbers).values.astype(np.int64)
        return columns


def as_float32(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Return a tensor as a contiguous float32 array; `InputError` when it is not finite."""
    array = np.ascontiguousarray(tensor.detach().cpu().float().numpy())
    if not np.isfinite(array).all():
        raise InputError(
            "a trained tensor is not finite: the model has diverged; lower the learning rate and run again"
        )
    return array


def check(model: TrainedModel) -> None:
    """Check that tensors, users and items belong together; `InputError` naming what does not."""
    program, shared, users, items = model.program, model.shared, model.names.users, len(model.names.items)
    if len(set(users)) != len(users):
        raise InputError("user ids repeat; give every user its own id")
    for place, given, lead in (("shared", shared, ()), ("private", model.private, (len(users),))):
        for name, tensor in given.items():
            if name not in program.specs or program.specs[name].place != place:
                raise InputError(
                    f"{place} tensor '{name}' is not one of {program.name}'s; export with the same program"
                )
            if tuple(tensor.shape) != (*lead, *program.specs[name].shape):
                want = [*lead, *program.specs[name].shape]
                raise InputError(f"{place} tensor '{name}' is {list(tensor.shape)} instead of {want}")
    missing = [n for n, s in program.specs.items() if s.place == "shared" and n not in shared]
    if missing:
        raise InputError(f"shared tensor '{missing[0]}' is missing; export with all of {program.name}'s shared tensors")
    history, times = model.history, model.times
    if program.needs_history and history is None:
        raise InputError(f"{program.name} reads past positives: give history")
    if times is not None and (history is None or not np.array_equal(times.offsets, history.offsets)):
        raise InputError("times are not those of history: give one for each of its items")
    for what, rows in (("history", history), ("seen", model.seen)):
        if rows is None:
            continue
        if len(rows.offsets) != len(users) + 1:
            raise InputError(f"{what} has {len(rows.offsets) - 1} users instead of {len(users)}")
        if len(rows.values) and not (np.min(rows.values) >= 0 and np.max(rows.values) < items):
            raise InputError(f"{what} has item numbers outside the catalogue of {items} items")


def _ragged(rows: Rows) -> Ragged:
    return Ragged(np.asarray(rows.values), np.asarray(rows.offsets, np.int64))


def _row(rows: Rows, user: int) -> Ints:
    return np.asarray(rows.values[rows.offsets[user] : rows.offsets[user + 1]], np.int64)
