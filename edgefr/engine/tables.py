"""Item rows may belong to one client: rows of its own table, and rows that the server made for it.

Whole tables per client are avoided: 877 clients x 24,390 items x 50 values are 4.3 GB, and most rows are never touched
(`LaidRows` is the exception).
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
from cloud.uploads import Rows, Uploads
from edgefr.engine.work import Clients, RowUpdates
from export.program import LocalProgram, Pull, Tensors
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

LARGEST = 2**32
"""Bytes of clients' whole tables, laid out, that a federation takes; it holds up to four such arrays."""


def find(ascending: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return where each wanted number is among ascending ones, and whether it is there."""
    if not len(ascending):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return at, ascending[at] == wanted


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
        at, known = find(self.codes, clients * self.items + items)
        out[torch.from_numpy(np.flatnonzero(known))] = self.values[torch.from_numpy(self.places[at[known]])]
        return out

    def write(self, clients: Clients, items: npt.NDArray[np.integer[Any]], values: Tensor) -> None:
        """Put `values` [n, width] in the places of distinct (client, item) pairs."""
        codes, values = clients * self.items + items, values.cpu()
        at, known = find(self.codes, codes)
        self.values[torch.from_numpy(self.places[at[known]])] = values[torch.from_numpy(np.flatnonzero(known))]
        new = np.flatnonzero(~known)
        new = new[np.argsort(codes[new], kind="stable")]
        first = len(self)
        if first + len(new) > len(self.values):  # it grows by half, so that a row is copied a few times in its life
            wider = torch.zeros(max(first + len(new), len(self.values) * 3 // 2), self.width)
            wider[:first] = self.values[:first]
            self.values = wider
        self.values[first : first + len(new)] = values[torch.from_numpy(new)]
        where = np.searchsorted(self.codes, codes[new])
        self.places = np.insert(self.places, where, np.arange(first, first + len(new)))
        self.codes = np.insert(self.codes, where, codes[new])

    def tensors(self) -> dict[str, Tensor]:
        return {"codes": torch.from_numpy(self.codes), "values": self.values[torch.from_numpy(self.places)]}

    @classmethod
    def of(cls, items: int, saved: Mapping[str, Any]) -> PrivateRows:
        values = torch.as_tensor(saved["values"]).clone()
        out = cls(items, values.shape[1])
        out.codes, out.places, out.values = np.array(saved["codes"]), np.arange(len(values)), values
        return out

    def __reduce__(self) -> Any:
        return PrivateRows.of, (self.items, self.tensors())


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
        at, there = find(self.clients.numpy()[by_number], clients)
        known = np.flatnonzero(there)
        out = self.before[index]
        if len(known) < len(index):
            out = torch.where(torch.from_numpy(there).unsqueeze(1), out, self.table[index])
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
class TableChanges:
    """This is what clients of a shard left of a table: the broadcast `start` and their changes.

    `codes` [n] (client * items + item) ascend; `values` [n, width] are the changes.
    """

    start: Tensor
    codes: Ints
    values: Tensor

    @classmethod
    def of(cls, start: Tensor, shard: Clients, update: RowUpdates) -> TableChanges:
        codes = shard[update.client.cpu().numpy()] * len(start) + update.rows.cpu().numpy()
        order = np.argsort(codes, kind="stable")
        return cls(start.cpu(), codes[order], update.values.cpu()[torch.from_numpy(order)])

    def rows(self, clients: Clients, items: Ints) -> Tensor:
        """Return the row of each (client, item) pair."""
        out = self.start[torch.from_numpy(items)]
        at, there = find(self.codes, clients * len(self.start) + items)
        known = np.flatnonzero(there)
        out[torch.from_numpy(known)] += self.values[torch.from_numpy(at[known])]
        return out


class OwnTables:
    """This is a shared table as each client's last round left it: the broadcast it began from, plus its changes.

    Only changed rows are held. Clients that never took part have the server's present `table`.
    """

    def __init__(self, table: Tensor, clients: int):
        self.table = table
        self.last: Ints = np.full(clients, -1)
        """The shard that each client was in when it last trained; -1: it never did."""
        self.left: dict[int, TableChanges] = {}
        self._start: tuple[Tensor, Tensor] | None = None

    def leave(self, start: Tensor, shard: Clients, update: RowUpdates) -> None:
        """Keep what the clients of a shard made of the broadcast `start`; what they had before is forgotten."""
        number = max(self.left, default=-1) + 1
        if self._start is None or self._start[0] is not start:
            self._start = start, start.cpu()  # one copy for all shards that begin from it
        self.left[number] = TableChanges.of(self._start[1], shard, update)
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
            out.left[at] = TableChanges(starts[start], codes[at].numpy().copy(), values[at].clone())
        return out


@dataclass(frozen=True)
class LaidRows:
    """These are whole tables of `clients` [C]: `values` [C, items, width]; all other clients have `table`.

    In methods that pull all rows of a client towards a table of its own (`Phase.pulls`: GPFedRec as released) all rows
    of all clients differ after two rounds. Training still touches only rows that are read (`proximal`).
    """

    table: Tensor
    clients: Tensor
    values: Tensor

    @classmethod
    def first(cls, table: Tensor) -> LaidRows:
        return cls(table.cpu(), torch.zeros(0, dtype=torch.int64), table.cpu().new_zeros(0, *table.shape))

    def rows(self, clients: Clients, items: npt.NDArray[np.integer[Any]]) -> Tensor:
        """Return the row of each (client, item) pair: [n, width], on the host."""
        index, slot = torch.from_numpy(np.array(items, np.int64)), self._slots(clients)
        there = slot >= 0
        if bool(there.all()):  # nobody has the common table
            return self.values.flatten(0, 1).index_select(0, slot * len(self.table) + index)
        out = self.table[index]
        out[there] = self.values.flatten(0, 1)[slot[there] * len(self.table) + index[there]]
        return out

    def whole(self, clients: Clients) -> Tensor:
        """Return the tables of these clients, laid out [n, items, width]: a copy."""
        slot = self._slots(clients)
        if not len(self.values):
            return self.table.repeat(len(clients), 1, 1)
        out = self.values[slot.clamp_min(0)]
        out[slot < 0] = self.table
        return out

    def joined(self, table: Tensor, clients: Clients, values: Tensor) -> LaidRows:
        """Return these tables with `values` in place of what `clients` had, and `table` for everybody else."""
        new = torch.from_numpy(clients)
        others = ~torch.isin(self.clients, new)
        kept = torch.cat([self.values[others], values]) if bool(others.any()) else values
        return LaidRows(table.cpu(), torch.cat([self.clients[others], new]), kept)

    def tensors(self) -> dict[str, Tensor]:  # nobody writes into the tables laid out, so they are no copies
        return {"table": self.table.clone(), "clients": self.clients.clone(), "laid": self.values}

    def _slots(self, clients: Clients) -> Tensor:
        order = self.clients.argsort()
        at, known = find(self.clients[order].numpy(), clients)
        return torch.where(torch.from_numpy(known), order[torch.from_numpy(at)] if len(order) else -1, -1)


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


def pulls_of(program: LocalProgram) -> dict[str, Pull]:
    """Return the tables whose every row the clients of a program move in a round, and where to."""
    phases = (phase for phase in program.phases if phase.when == "round" and phase.epochs)
    return {name: pull for phase in phases for name, pull in phase.pulls.items()}


def check_laid(program: LocalProgram, clients: int, clipped: bool, personal: bool) -> None:
    """Raise `InputError` where whole tables are needed and cannot be had."""
    for name in pulls_of(program):
        size = 4 * clients * program.specs[name].size
        if clipped or not personal or size > LARGEST:
            raise InputError(
                f"clients of {program.name} change every row of {name}, so their tables are laid out: that takes the "
                f"rule graph, no clip, and at most {LARGEST / 2**30:.0f} GiB (here {size / 2**30:.1f}); "
                "set model.pulls=batch"
            )


def laid_out(
    pulls: Mapping[str, Pull], uploads: Uploads, cohort: Clients, shared: Tensors, tables: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return the cohort's whole tables after a round, [C, items, width] by name; unread rows moved in closed form."""
    out = {}
    for name, pull in pulls.items():
        items, slots, values = (part.cpu() for part in uploads.rows[name])
        start = shared[name].cpu()
        left = uploads.left[name].to(start).view(-1, 1, 1)
        whole = torch.lerp(tables[pull.to].whole(cohort), start, left)
        whole[slots, items] = start[items] + values
        out[name] = whole
    return out
