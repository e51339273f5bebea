"""These are the simulated users beside a bundle, or in it: private tensors, history and seen items of one class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from edge.clients import ClientState
from edge.sessions import Windows, window_of
from export.model import Ints, Rows, TrainedModel
from export.program import LocalProgram
from privacy.errors import InputError


@dataclass(frozen=True)
class Users:
    """These are all simulated users:

    ids, private tensors by name [U, ...], past positives, items to leave out, numbers.

    Where the program reads sessions, `history` is each user's newest one and `times` its moments, unix seconds."""

    ids: Sequence[str]
    private: Mapping[str, Tensor]
    history: Rows | None
    seen: Rows
    numbers: Sequence[int] | None = None
    times: Rows | None = None

    @classmethod
    def of(cls, model: TrainedModel) -> Users:
        """Take the users of a trained model."""
        m = model
        return cls(list(m.names.users), m.private, m.history, m.seen, m.numbers, m.times)

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
        """Items one user has seen."""
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
        columns: dict[str, npt.NDArray[Any]]
        columns = {f"private.{name}": as_float32(tensor[numbers]) for name, tensor in self.private.items()}
        for name, rows in (("history", self.history), ("seen", self.seen)):
            values, offsets = take(rows, numbers)
            columns |= {f"{name}.values": values.astype(np.int32), f"{name}.offsets": offsets}
        if self.times is not None:
            columns["history.times"] = take(self.times, numbers)[0].astype(np.int64)
        return columns


def take(rows: Rows | None, numbers: Ints) -> tuple[npt.NDArray[Any], Ints]:
    """Return values and offsets of these users alone, in this order; empty rows for None."""
    if rows is None:
        return np.empty(0, np.int64), np.zeros(len(numbers) + 1, np.int64)
    starts = np.asarray(rows.offsets, np.int64)
    counts = np.diff(starts)[numbers]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    positions = np.arange(offsets[-1]) + np.repeat(starts[numbers] - offsets[:-1], counts)
    return np.asarray(rows.values)[positions], offsets


def as_float32(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Return a tensor as a contiguous float32 array; `InputError` when it is not finite."""
    array = np.ascontiguousarray(tensor.detach().cpu().float().numpy())
    if not np.isfinite(array).all():
        raise InputError(
            "a trained tensor is not finite: the model has diverged; lower the learning rate and run again"
        )
    return array


def check(program: LocalProgram, users: Users, shared: Mapping[str, Tensor], items: int) -> None:
    """Check that tensors, users and items belong together; `InputError` naming what does not."""
    if len(set(users.ids)) != len(users.ids):
        raise InputError("user ids repeat; give every user its own id")
    for place, given in (("shared", shared), ("private", users.private)):
        for name in given:
            if name not in program.specs or program.specs[name].place != place:
                raise InputError(
                    f"{place} tensor '{name}' is not one of {program.name}'s; export with the same program"
                )
        for name, tensor in given.items():
            lead = (len(users.ids),) if place == "private" else ()
            if tuple(tensor.shape) != (*lead, *program.specs[name].shape):
                want = [*lead, *program.specs[name].shape]
                raise InputError(f"{place} tensor '{name}' is {list(tensor.shape)} instead of {want}")
    missing = [n for n, s in program.specs.items() if s.place == "shared" and n not in shared]
    if missing:
        raise InputError(f"shared tensor '{missing[0]}' is missing; export with all of {program.name}'s shared tensors")
    if program.needs_history and users.history is None:
        raise InputError(f"{program.name} reads past positives: give history")
    if users.times is not None and (
        users.history is None or not np.array_equal(users.times.offsets, users.history.offsets)
    ):
        raise InputError("times are not those of history: give one for each of its items")
    for what, rows in (("history", users.history), ("seen", users.seen)):
        if rows is None:
            continue
        if len(rows.offsets) != len(users.ids) + 1:
            raise InputError(f"{what} has {len(rows.offsets) - 1} users instead of {len(users.ids)}")
        if len(rows.values) and not (np.min(rows.values) >= 0 and np.max(rows.values) < items):
            raise InputError(f"{what} has item numbers outside the catalogue of {items} items")


def _row(rows: Rows, user: int) -> Ints:
    return np.asarray(rows.values[rows.offsets[user] : rows.offsets[user + 1]], np.int64)
