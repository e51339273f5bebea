"""A case is generated data for one program: clients of very different activity, their work, and what came of it.

Owns: the data, the first values, and updates laid out so that they can be compared. Does not own: what is compared
(`checks`), how clients train (`edgefr.engine`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.engine.executors import inline
from edgefr.engine.tables import GraphRows, Own, PrivateRows, first_tables
from edgefr.engine.work import Clients, Executor, LocalWork, OwnTable, Updates
from edgefr.methods.testing.closeness import after_training
from export.program import LocalProgram, SessionProgram
from privacy import keyed
from privacy.errors import InputError

When = Literal["round", "final"]
Outcome = dict[str, Tensor]
"""Whatever clients hand back and keep, one slot per client: [C, ...] by name."""

CLIENTS, POOL, SEED, ROUND, NEGATIVES, FIRST = 23, 60, 5, 2, 3, 3
"""Clients; items they know at most; the seed of draws; the round; negatives of a positive; the seed of first values."""
SESSIONS = 9
"""Clients that read sessions: a program of windows costs more."""


@dataclass(eq=False)
class Case(ABC):
    """A case has a program, data made for it, and the clients that hold them."""

    program: LocalProgram
    clients: Clients = field(init=False)

    @property
    @abstractmethod
    def busiest(self) -> int:
        """Return the client that has most to learn from."""

    @abstractmethod
    def work(
        self, when: When = "round", batch: int = 16, other: int | None = None, program: LocalProgram | None = None
    ) -> LocalWork:
        """Return everybody's work; client `other` has other data than usual, as many."""

    @cached_property
    def wide(self) -> LocalProgram:
        return widened(self.program)

    @property
    def whens(self) -> list[When]:
        """Return when the program's phases run."""
        return [when for when in ("round", "final") if any(p.when == when for p in self.program.phases)]

    @cached_property
    def items(self) -> int:
        return items_of(self.program)

    @cached_property
    def shown(self) -> int:
        """Count the first items of the catalogue that clients may learn of."""
        whole = isinstance(self.program, SessionProgram) and self.program.whole_catalogue
        return self.items if whole else min(self.items, POOL)

    @cached_property
    def first(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return shared tensors, and private ones of all clients: two of three have trained once and had a reply."""
        shared = self.program.init_shared(FIRST)
        private = self.program.init_private(FIRST, torch.from_numpy(self.clients))
        some = torch.from_numpy(self.clients % 3 > 0)
        before = inline.run(replace(self.work(), round=ROUND - 1), shared, private, self.clients)
        for name, value in before.private.items():
            private[name] = torch.where(some.view(-1, *[1] * (value.ndim - 1)), value, private[name])
        reply = self.program.reply if isinstance(self.program, SessionProgram) else None
        if reply is not None:
            keys = keyed.fold(keyed.key(FIRST, reply), self.clients)
            draws = keyed.normal(keys[:, None], np.arange(private[reply][0].numel())) * 0.4 * some.numpy()[:, None]
            private[reply] = torch.from_numpy(draws).float().view(private[reply].shape)
        return shared, private

    def begun(
        self, clients: Clients, wide: bool = True, other: int | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        shared, private = self.first
        change = torch.from_numpy(0.5 * (clients == other)).float()
        own = {name: value[torch.from_numpy(clients)] for name, value in private.items()}
        own = {name: value + change.view(-1, *[1] * (value.ndim - 1)) for name, value in own.items()}
        if not wide:
            return {name: value.clone() for name, value in shared.items()}, own
        return {n: v.double() for n, v in shared.items()}, {n: v.double() for n, v in own.items()}

    def run(
        self, executor: Executor, clients: Clients, when: When = "round", batch: int = 16, other: int | None = None
    ) -> Outcome:
        todo = self.work(when, batch, other, self.wide)
        todo = replace(todo, tables={name: Wide(table) for name, table in todo.tables.items()})
        return self.outcome(todo, executor(todo, *self.begun(clients, other=other), clients), clients)

    def outcome(self, todo: LocalWork, updates: Updates, clients: Clients) -> Outcome:
        """Lay updates out as one dense tensor per name."""
        out = dict(updates.dense) | {f"private {name}": value for name, value in updates.private.items()}
        for name, rows in updates.rows.items():
            out[name] = rows.values.new_zeros(len(clients), self.shown, rows.values.shape[1])
            if name in updates.left:
                out[name] += self.others(todo, updates, name, clients)
            out[name][rows.client, rows.rows] = rows.values
        for name, rows in updates.tables.items():
            out[f"own {name}"] = self._whole(todo.tables[name], clients)
            out[f"own {name}"][rows.client, rows.rows] = rows.values
        return out if updates.message is None else {**out, "message": updates.message}

    def others(self, todo: LocalWork, updates: Updates, name: str, clients: Clients) -> Tensor:
        """Return how rows that an update does not name moved to where they are pulled, [C, items, width]."""
        (to,) = (phase.pulls[name].to for phase in todo.phases if name in phase.pulls)
        way = self._whole(todo.tables[to], clients) - self.begun(clients)[0][name][: self.shown]
        return way * (1 - updates.left[name].to(way)).view(-1, 1, 1)

    def _whole(self, table: OwnTable, clients: Clients) -> Tensor:
        pairs = np.repeat(clients, self.shown), np.tile(np.arange(self.shown), len(clients))
        return table.rows(*pairs).view(len(clients), self.shown, -1)

    def bounds(self, when: When = "round", batch: int = 16) -> dict[str, Any]:
        """Return bounds for `assert_same`."""
        todo, steps = self.work(when, batch), 0
        for phase in todo.phases:
            some = todo.sampler
            steps += phase.epochs * (
                int(some.steps(self.clients, phase.which).max()) if isinstance(some, Sampler) else 1
            )
        return {**after_training(todo.phases, steps, *self.begun(self.clients)), "inputs": torch.float32}


@dataclass(eq=False)
class SetCase(Case):
    """These clients learn from sets of items; one of them has none."""

    def __post_init__(self) -> None:
        self.clients = np.arange(CLIENTS)

    @property
    def idle(self) -> int:
        """Return the client that has nothing."""
        return CLIENTS // 2

    @property
    def busiest(self) -> int:
        return int(np.argmax(self.train().counts))

    def train(self, other: int | None = None) -> Ragged:
        rng = np.random.default_rng(1)
        counts = np.minimum(rng.geometric(0.12, CLIENTS), self.shown // 2)
        counts[self.idle] = 0
        rows = [rng.choice(self.shown, count, replace=False).tolist() for count in counts]
        if other is not None:
            rows[other] = np.setdiff1d(np.arange(self.shown), rows[other])[-counts[other] :].tolist()
        return Ragged.from_lists(rows)

    def work(
        self, when: When = "round", batch: int = 16, other: int | None = None, program: LocalProgram | None = None
    ) -> LocalWork:
        program, train = program or self.program, self.train(other)
        sampler = Sampler(train, np.arange(self.shown), self.items, NEGATIVES, batch, SEED)
        phases = [phase for phase in program.phases if phase.when == when]
        tables = own_rows(self.program, self.shown)
        return LocalWork(program, phases, sampler, train, ROUND, torch.device("cpu"), tables=tables)


@dataclass(eq=False)
class SessionCase(Case):
    """These clients learn from sessions: of two items, of less than a window, of just one, and of more."""

    def __post_init__(self) -> None:
        self.clients = np.arange(SESSIONS)

    @property
    def busiest(self) -> int:
        return int(np.argmax(self.sessions()[0].counts))

    @property
    def window(self) -> int:
        """Return the positions of a window."""
        assert isinstance(self.program, SessionProgram)
        return self.program.window

    def sessions(self, other: int | None = None) -> tuple[Ragged, Ragged]:
        length, rng = self.window, np.random.default_rng(1)
        lengths = np.array([length + 1, 2, 2 * length + 1, 3, max(length // 2, 2), 2, length + 3, 3 * length, length])
        lengths = np.maximum(lengths, 2)
        known = np.where(lengths > length, self.shown // 2, self.shown * 3 // 4)
        items = [rng.integers(0, k, n).tolist() for k, n in zip(known.tolist(), lengths.tolist(), strict=True)]
        times = [(10**9 + np.cumsum(rng.integers(0, 90, n))).tolist() for n in lengths.tolist()]
        if other is not None:
            items[other] = [(item + self.shown // 4) % self.shown for item in items[other]]
        return Ragged.from_lists(items), Ragged.from_lists(times, np.int64)

    def _with_next(self, column: Ragged) -> Ragged:
        rows = [column[client].tolist() for client in self.clients]
        return Ragged.from_lists([*rows, *(row[1:] if len(row) > 2 else row for row in rows)], column.values.dtype.type)

    def seen(self, other: int | None = None) -> Ragged:
        items, _ = self.sessions(other)
        return Ragged.from_lists([np.unique(items[client]).tolist() for client in self.clients])

    def work(
        self, when: When = "round", batch: int = 16, other: int | None = None, program: LocalProgram | None = None
    ) -> LocalWork:
        program, (items, times), seen = program or self.program, self.sessions(other), self.seen(other)
        assert isinstance(program, SessionProgram)
        following = self.clients + SESSIONS if program.asks == "next" else None
        drawn = (seen, np.arange(self.shown), self.items, self.window, NEGATIVES, SEED)
        items, times = self._with_next(items), self._with_next(times)
        draws = SessionSampler(items, times, self.clients, *drawn, once=program.one_draw, following=following)
        phases = [phase for phase in program.phases if phase.when == when]
        return LocalWork(program, phases, draws, Ragged.empty(SESSIONS), ROUND, torch.device("cpu"))


def case_of(program: LocalProgram) -> Case:
    """Make the case of a program. Raises `InputError` for a catalogue too small to learn from."""
    if items_of(program) < 12:
        raise InputError(f"{program.name} has {items_of(program)} items; a check needs a catalogue of 12 or more")
    return SessionCase(program) if isinstance(program, SessionProgram) else SetCase(program)


def items_of(program: LocalProgram) -> int:
    """Count the catalogue of a program: the rows of its tables. 0 where it has none."""
    tables = [spec.shape[0] for spec in program.specs.values() if spec.kind == "rows"]
    return max([*tables, *(len(table) for table in program.frozen.values())], default=0)


def own_rows(program: LocalProgram, items: int, clients: int = CLIENTS) -> dict[str, Own]:
    """Make rows of the clients' own tables: a third of them touched before, or made of other clients' changes."""
    tables = first_tables(program, program.init_shared(FIRST))
    for name, table in tables.items():
        rng, cohort = np.random.default_rng(4), np.arange(clients)[::-2].copy()
        whose = np.arange(clients) if isinstance(table, PrivateRows) else np.arange(len(cohort))
        client, item = np.nonzero(rng.random((len(whose), items)) < 0.3)
        width = program.specs[name].shape[1]
        values = torch.from_numpy(rng.standard_normal((len(item), width), dtype=np.float32))
        if isinstance(table, PrivateRows):
            table.write(client, item, values)
        else:
            mix = torch.from_numpy(rng.random((len(cohort), len(cohort)))) / len(cohort)
            changes = torch.from_numpy(item), torch.from_numpy(client), values
            tables[name] = GraphRows.of(table.table + 1, table.table, cohort, mix, changes)
    return tables


class Wide:
    """These are a client's own rows, handed out in float64."""

    def __init__(self, table: OwnTable):
        self.table = table

    def rows(self, clients: Clients, items: np.ndarray) -> Tensor:
        return self.table.rows(clients, items).double()


class _Widening(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            return args[0].detach().double() if args[0].is_floating_point() else args[0]
        return func(*args, **(kwargs or {}))


def widened(program: LocalProgram) -> LocalProgram:
    with _Widening():
        return copy.deepcopy(program)
