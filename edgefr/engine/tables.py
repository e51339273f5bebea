"""Item rows may belong to one client: rows of its own table, and rows that the server made for it.

Whole tables per client are avoided: 877 clients x 24,390 items x 50 values are 4.3 GB, and most rows are never touched
(`dense_tables` has the exception). Owns: storage of such rows between rounds. Does not own: training (executors), when
(`federation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.rule import Answer
from cloud.similarities import by_item
from cloud.uploads import Rows
from edgefr.engine.dense_tables import LaidRows
from edgefr.engine.work import Clients, RowUpdates
from export.program import LocalProgram, Tensors

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class PrivateRows:
    """This is a table [items, width] per client that holds the written rows; others are zeros.

    Values lie in the order in which they came, with spare room; ascending `codes` say where.

    >>> own = PrivateRows(items=10, width=2)
    >>> own.write(np.array([4]), np.array([7]), torch.tensor([[1.0, 2.0]]))
    >>> own.rows(np.array([4, 4]), np.array([7, 8])).tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """

    def __init__(self, items: int, width: int):
        self.items, self.width = items, width
        self.codes: Ints = np.zeros(0, np.int64)  # client * items + item
        self.places: Ints = np.zeros(0, np.int64)  # the row of `values` that belongs to each code
        self.values = torch.zeros(0, width)

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, clients: Clients, items: npt.NDArray[np.integer[Any]]) -> Tensor:
        """Return the row of each (client, item) pair: float32 [n, width], on the host."""
        out = torch.zeros(len(clients), self.width)
        at, known = self._find(clients * self.items + items)
        out[torch.from_numpy(np.flatnonzero(known))] = self.values[torch.from_numpy(self.places[at[known]])]
        return out

    def write(self, clients: Clients, items: npt.NDArray[np.integer[Any]], values: Tensor) -> None:
        """Put `values` [n, width] in the places of distinct (client, item) pairs."""
        codes, values = clients * self.items + items, values.cpu()
        at, known = self._find(codes)
        self.values[torch.from_numpy(self.places[at[known]])] = values[torch.from_numpy(np.flatnonzero(known))]
        new = np.flatnonzero(~known)
        new = new[np.argsort(codes[new], kind="stable")]
        first = len(self)
        self._make_room(first + len(new))
        self.values[first : first + len(new)] = values[torch.from_numpy(new)]
        where = np.searchsorted(self.codes, codes[new])
        self.places = np.insert(self.places, where, np.arange(first, first + len(new)))
        self.codes = np.insert(self.codes, where, codes[new])

    def copy(self) -> PrivateRows:
        return self.of(self.items, self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Return what is to be saved: `codes` [n] (client * items + item), ascending, and their `values` [n, width]."""
        return {"codes": torch.from_numpy(self.codes), "values": self.values[torch.from_numpy(self.places)]}

    @classmethod
    def of(cls, items: int, saved: Mapping[str, Any]) -> PrivateRows:
        values = torch.as_tensor(saved["values"]).clone()
        out = cls(items, values.shape[1])
        out.codes, out.places, out.values = np.array(saved["codes"]), np.arange(len(values)), values
        return out

    def __reduce__(self) -> Any:
        return PrivateRows.of, (self.items, self.tensors())

    def _find(self, codes: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Find where each code is among the held ones, and whether it is there."""
        if not len(self):
            return np.zeros(len(codes), np.int64), np.zeros(len(codes), np.bool_)
        at = np.minimum(np.searchsorted(self.codes, codes), len(self) - 1)
        return at, self.codes[at] == codes

    def _make_room(self, rows: int) -> None:
        """Make room for so many rows in all; it grows by half, so that a row is copied a few times in its life."""
        if rows > len(self.values):
            wider = torch.zeros(max(rows, len(self.values) * 3 // 2), self.width)
            wider[: len(self)] = self.values[: len(self)]
            self.values = wider


@dataclass(frozen=True)
class GraphRows:
    """The server sends each client the mean of the tables of clients like it (GPFedRec).

    `table` [items, width] is the next broadcast, for clients outside the last cohort. Cohort `clients` [C] get `before`
    (the last broadcast) plus `mix` [C, C] times the cohort's changes, given as `items` [R] ascending, `slots` [R] and
    `values` [R, width]. Their tables are never laid out.
    """

    table: Tensor
    before: Tensor
    clients: Tensor
    mix: Tensor
    items: Tensor
    slots: Tensor
    values: Tensor

    @classmethod
    def first(cls, table: Tensor) -> GraphRows:
        none = torch.zeros(0, dtype=torch.int64)
        return cls(table.cpu(), table.cpu(), none, torch.zeros(0, 0), none, none, torch.zeros(0, table.shape[1]))

    @classmethod
    def of(cls, table: Tensor, before: Tensor, clients: Clients, mix: Tensor, changes: Rows) -> GraphRows:
        """Return the answers of a round to its cohort `clients` [C], by their relations `mix` and `changes`."""
        items, slots, values = (part.cpu() for part in changes)
        order = torch.from_numpy(by_item(items.numpy(), len(table))[0])
        parts = (items[order], slots[order], values[order])
        return cls(table.cpu(), before.cpu(), torch.from_numpy(clients), mix.float().cpu(), *parts)

    def rows(self, clients: Clients, items: npt.NDArray[np.integer[Any]]) -> Tensor:
        """Return the row of each (client, item) pair: float32 [n, width], on the host."""
        index = torch.from_numpy(np.array(items, np.int64))
        by_number = self.clients.argsort().numpy()
        ascending = self.clients.numpy()[by_number]
        at = np.minimum(np.searchsorted(ascending, clients), max(len(ascending) - 1, 0))
        there = ascending[at] == clients if len(ascending) else np.zeros(len(clients), np.bool_)
        if there.all():
            out = self.before[index]
            self._add(out.numpy(), np.arange(len(index)), by_number[at], index.numpy())
        else:
            known = np.flatnonzero(there)
            out = torch.where(torch.from_numpy(there).unsqueeze(1), self.before[index], self.table[index])
            self._add(out.numpy(), known, by_number[at[known]], index.numpy()[known])
        return out

    def _add(self, out: Floats, places: Ints, slots: Ints, items: Ints) -> None:
        """Add the mixed changes of pairs of a slot and an item to their `places` of `out`, an item at a time."""
        from cloud.compiled.pairs import pick

        order, ends = by_item(items, len(self.table))
        asked, places = slots[order], places[order]
        starts = np.concatenate([[0], ends])
        found = np.flatnonzero(np.diff(starts))
        low, high = (np.searchsorted(self.items.numpy(), found, side) for side in ("left", "right"))
        mix, by, values = self.mix.numpy(), self.slots.numpy(), self.values.numpy()
        for first, last, a, b in np.stack([starts[found], ends[found], low, high], axis=1).tolist():
            if a < b:  # somebody changed this item
                picked = np.empty((last - first, b - a), np.float32)
                pick(mix, asked[first:last], by[a:b], picked)
                out[places[first:last]] += picked @ values[a:b]

    def tensors(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in vars(self).items()}


@dataclass(frozen=True)
class Left:
    """This is what clients of a shard left of a table: the broadcast `start` and their changes.

    `codes` [n] (client * items + item) ascend; `values` [n, width] are the changes.
    """

    start: Tensor
    codes: Ints
    values: Tensor

    @classmethod
    def of(cls, start: Tensor, shard: Clients, update: RowUpdates) -> Left:
        codes = shard[update.client.cpu().numpy()] * len(start) + update.rows.cpu().numpy()
        order = np.argsort(codes, kind="stable")
        return cls(start.cpu(), codes[order], update.values.cpu()[torch.from_numpy(order)])

    def rows(self, clients: Clients, items: Ints) -> Tensor:
        """Return the row of each (client, item) pair."""
        out = self.start[torch.from_numpy(items)]
        if not len(self.codes):
            return out
        codes = clients * len(self.start) + items
        at = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        known = np.flatnonzero(self.codes[at] == codes)
        out[torch.from_numpy(known)] += self.values[torch.from_numpy(at[known])]
        return out


class OwnTables:
    """This is a shared table as each client's last round left it: the broadcast it began from, plus its changes.

    Only changed rows are held. Clients that never took part have the server's present `table`.

    >>> own = OwnTables(torch.zeros(3, 1), clients=2)
    >>> changes = RowUpdates(torch.tensor([2]), torch.tensor([0]), torch.tensor([[5.0]]))
    >>> own.leave(torch.ones(3, 1), np.array([1]), changes)
    >>> own.rows(np.array([0, 1, 1]), np.array([2, 2, 0])).flatten().tolist()
    [0.0, 6.0, 1.0]
    """

    def __init__(self, table: Tensor, clients: int):
        self.table = table
        self.last: Ints = np.full(clients, -1)
        """The shard that each client was in when it last trained; -1: it never did."""
        self.left: dict[int, Left] = {}
        self._start: tuple[Tensor, Tensor] | None = None

    def leave(self, start: Tensor, shard: Clients, update: RowUpdates) -> None:
        """Keep what the clients of a shard made of the broadcast `start`; what they had before is forgotten."""
        number = max(self.left, default=-1) + 1
        if self._start is None or self._start[0] is not start:
            self._start = start, start.cpu()  # one copy for all shards that begin from it
        self.left[number] = Left.of(self._start[1], shard, update)
        self.last[shard] = number

    def forget(self) -> None:
        """Let go of shards none of whose clients stands where that shard left it: at the end of a round."""
        self._start = None
        self.left = {number: self.left[number] for number in np.unique(self.last[self.last >= 0]).tolist()}

    def rows(self, clients: Clients, items: npt.NDArray[np.integer[Any]]) -> Tensor:
        """Return the row of each (client, item) pair: float32 [n, width], on the host."""
        asked, last = np.asarray(items, np.int64), self.last[clients]
        out = self.table.new_empty(len(asked), self.table.shape[1], device="cpu")
        for number in np.unique(last).tolist():
            some = np.flatnonzero(last == number)
            if number < 0:
                out[torch.from_numpy(some)] = self.table.cpu()[torch.from_numpy(asked[some])]
            else:
                out[torch.from_numpy(some)] = self.left[number].rows(clients[some], asked[some])
        return out

    def tensors(self) -> dict[str, Tensor]:
        self.forget()
        parts = list(self.left.values())
        starts = list({id(part.start): part.start for part in parts}.values())
        place = {id(start): at for at, start in enumerate(starts)}
        number = {old: new for new, old in enumerate(self.left)}
        empty = self.table.new_zeros(0, *self.table.shape, device="cpu")
        return {
            "table": self.table.cpu().clone(),
            "last": torch.tensor([number.get(n, -1) for n in self.last.tolist()], dtype=torch.int64),
            "starts": torch.stack(starts) if starts else empty,
            "start": torch.tensor([place[id(part.start)] for part in parts], dtype=torch.int64),
            "lengths": torch.tensor([len(part.codes) for part in parts], dtype=torch.int64),
            "codes": torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *(part.codes for part in parts)])),
            "values": torch.cat(
                [self.table.new_zeros(0, self.table.shape[1], device="cpu")] + [p.values for p in parts]
            ),
        }

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> OwnTables:
        parts = {name: torch.as_tensor(value) for name, value in saved.items()}
        out = cls(parts["table"], len(parts["last"]))
        out.last = parts["last"].numpy().copy()
        lengths, starts = parts["lengths"].tolist(), list(parts["starts"])
        values, codes = (parts[name].split(lengths) for name in ("values", "codes"))
        for at, start in enumerate(parts["start"].tolist()):
            out.left[at] = Left(starts[start], codes[at].numpy().copy(), values[at].clone())
        return out


Own = PrivateRows | GraphRows | OwnTables | LaidRows
RECEIVED = "received."


def first_tables(program: LocalProgram, shared: Tensors) -> dict[str, Own]:
    out: dict[str, Own] = {}
    laid = {pull.to for phase in program.phases for pull in phase.pulls.values()}
    for name, spec in program.specs.items():
        if spec.kind == "rows" and spec.place == "private":
            out[name] = PrivateRows(*spec.shape)
        if spec.kind == "rows" and spec.place == "received":
            out[name] = (LaidRows if name in laid else GraphRows).first(shared[name.removeprefix(RECEIVED)])
    return out


def made_for(
    cohort: Clients, before: Tensor, answer: Answer, name: str, changes: Rows, laid: Tensor | None
) -> GraphRows | LaidRows:
    """Return what the server made of table `name` for each client of a cohort; `laid`: of their whole tables."""
    assert answer.mix is not None
    after = answer.after[name]
    if laid is None:
        return GraphRows.of(after, before, cohort, answer.mix, changes)
    mixed = torch.tensordot(answer.mix.to(laid), laid, dims=1)
    return LaidRows.first(after).joined(after, cohort, mixed)


def tensors_of(tables: Mapping[str, Own]) -> dict[str, Tensor]:
    return {f"{name}/{part}": value for name, table in tables.items() for part, value in table.tensors().items()}


def tables_of(program: LocalProgram, saved: Mapping[str, Any]) -> dict[str, Own]:
    out: dict[str, Own] = {}
    for name, spec in program.specs.items():
        parts = {k.removeprefix(f"{name}/"): torch.as_tensor(v) for k, v in saved.items() if k.startswith(f"{name}/")}
        if parts:
            opened = next(made for part, made in OPENED.items() if part in parts)
            out[name] = opened(spec.shape[0], parts)
    return out


OPENED: Mapping[str, Callable[[int, dict[str, Tensor]], Own]] = {
    "laid": lambda items, parts: LaidRows(parts["table"], parts["clients"], parts["laid"]),
    "mix": lambda items, parts: GraphRows(**parts),
    "last": lambda items, parts: OwnTables.of(parts),
    "codes": PrivateRows.of,
}
"""How a table is made of (items, what was saved), by the first of these parts that it has."""


def keep_rows(
    tables: Mapping[str, Own], shard: Clients, updates: Mapping[str, RowUpdates], kept: npt.NDArray[np.int64]
) -> None:
    for name, update in updates.items():
        table = tables[name]
        assert isinstance(table, PrivateRows)
        slots = update.client.cpu().numpy()
        mine = np.flatnonzero(np.isin(slots, kept))
        values = update.values if len(mine) == len(slots) else update.values[torch.from_numpy(mine)]
        table.write(shard[slots[mine]], update.rows.cpu().numpy()[mine], values)
