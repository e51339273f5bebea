"""Item rows that belong to one client: what it keeps of a table of its own.

No table per client is ever laid out: 877 clients x 24,390 items x 50 values are 4.3 GB, and a client that is not
through with its first hundred rounds has touched a small part of them.
Owns: where such rows lie between rounds. Does not own: how they are trained (executors), when (`federation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.engine.work import Clients, RowUpdates
from edgefr.methods.program import LocalProgram

Ints = npt.NDArray[np.int64]


class PrivateRows:
    """A table [items, width] per client, of which only rows that were ever written are held; the others are zeros.

    Values lie in the order in which they came, with room for more; `codes` ascend and say where.

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
        """Rows held, of all clients together."""
        return len(self.codes)

    def rows(self, clients: Clients, items: npt.NDArray[np.integer[Any]]) -> Tensor:
        """The row of each (client, item) pair: float32 [n, width], on the host."""
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
        """The same rows, apart from these."""
        return self.of(self.items, self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """What is to be saved: `codes` [n] (client * items + item), ascending, and their `values` [n, width]."""
        return {"codes": torch.from_numpy(self.codes), "values": self.values[torch.from_numpy(self.places)]}

    @classmethod
    def of(cls, items: int, saved: Mapping[str, Any]) -> PrivateRows:
        """The rows of `tensors()`, as tensors or arrays."""
        values = torch.as_tensor(saved["values"]).clone()
        out = cls(items, values.shape[1])
        out.codes, out.places, out.values = np.array(saved["codes"]), np.arange(len(values)), values
        return out

    def __reduce__(self) -> Any:
        return PrivateRows.of, (self.items, self.tensors())

    def _find(self, codes: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Where each code is among the held ones, and whether it is there."""
        if not len(self):
            return np.zeros(len(codes), np.int64), np.zeros(len(codes), np.bool_)
        at = np.minimum(np.searchsorted(self.codes, codes), len(self) - 1)
        return at, self.codes[at] == codes

    def _make_room(self, rows: int) -> None:
        """Room for so many rows in all; it grows by half, so that a row is copied a few times in its life."""
        if rows > len(self.values):
            wider = torch.zeros(max(rows, len(self.values) * 3 // 2), self.width)
            wider[: len(self)] = self.values[: len(self)]
            self.values = wider


def empty_tables(program: LocalProgram) -> dict[str, PrivateRows]:
    """Private rows of a program's clients before they ever trained, by name."""
    found = {n: spec for n, spec in program.specs.items() if spec.kind == "rows" and spec.place == "private"}
    return {name: PrivateRows(*spec.shape) for name, spec in found.items()}


def tensors_of(tables: Mapping[str, PrivateRows]) -> dict[str, Tensor]:
    """Tables as tensors by `<name>.<part>`: for checkpoints, and to keep what a round came to."""
    return {f"{name}.{part}": value for name, table in tables.items() for part, value in table.tensors().items()}


def tables_of(program: LocalProgram, saved: Mapping[str, Any]) -> dict[str, PrivateRows]:
    """The tables of `tensors_of`, from tensors or arrays."""
    return {
        name: PrivateRows.of(table.items, {part: saved[f"{name}.{part}"] for part in table.tensors()})
        for name, table in empty_tables(program).items()
    }


def keep_rows(tables: Mapping[str, PrivateRows], shard: Clients, updates: Mapping[str, RowUpdates]) -> None:
    """Put back what the clients of a shard made of their own rows."""
    for name, update in updates.items():
        tables[name].write(shard[update.client.cpu().numpy()], update.rows.cpu().numpy(), update.values)
