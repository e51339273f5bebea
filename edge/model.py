"""A device uses this of a bundle: its graphs, opened once, and its tables beneath the device's own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge import session_state as streams
from edge.bundle import Bundle
from edge.exchange import named
from edge.graph import Graph
from edge.item_vectors import Kept, read_vectors
from edge.learning import Learning
from edge.scorer import Rows, Scorer, rows_of, window_feeds
from edge.sessions import Windows, window_of
from edge.state import State
from edge.tables import open_table
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
TOGETHER = 16  # items made at once: bounds memory
ROOM = 32 << 20  # bytes of rows that are kept


class Prepared:
    """A prepared table is made by a graph of the rows that `tables` have of the same items.

    Training changes nothing in it, so a row is made once and then kept up to `room` bytes, a client's own items first.
    `open_graph` gives the graph when the first row is asked for.
    """

    def __init__(
        self, open_graph: Callable[[], Graph], tables: Mapping[str, Rows], items: int, room: int = ROOM
    ) -> None:
        self._open, self._tables, self._items, self._left = open_graph, tables, items, room
        self._kept: dict[int, Floats] = {}

    def rows(self, items: Any) -> Floats:
        """Return rows [n, width] of a slice or an array of items; `InputError` if they are not finite numbers."""
        wanted = np.arange(self._items)[items].tolist()
        found = {item: self._kept[item] for item in wanted if item in self._kept}
        missing = [item for item in dict.fromkeys(wanted) if item not in found]
        for start in range(0, len(missing), TOGETHER):
            some = missing[start : start + TOGETHER]
            for item, row in zip(some, self._made(np.array(some)), strict=True):
                found[item] = row
                self._keep(item, row)
        return np.stack([found[item] for item in wanted])

    def _made(self, items: npt.NDArray[np.int64]) -> Floats:
        graph = self._open()
        rows = graph.run(rows_of(graph, "items", items, self._tables))
        if rows.ndim != 2 or len(rows) != len(items) or not np.isfinite(rows).all():
            raise InputError(f"{graph.path} gives no row of finite numbers for each item; export again")
        return rows

    def _keep(self, item: int, row: Floats) -> None:
        if row.nbytes <= self._left:
            self._kept[item] = row.copy()
            self._left -= row.nbytes


def trained_tables(learning: Learning) -> list[str]:
    """Name the tables that everybody trains, of which a device has a copy of its own."""
    return [tensor.name for tensor in learning.tensors if tensor.kind == "rows" and tensor.place == "shared"]


def trained_mb(bundle: Bundle) -> float:
    """Return the memory that one copy of a bundle's trained tables takes, MB (10^6 bytes)."""
    learning = bundle.config.learning
    trained = [] if learning is None else trained_tables(learning)
    widths = [table.width for table in bundle.config.tables if table.name in trained]
    return sum(widths) * bundle.manifest.item_count * 4e-6


class Model:
    """These are the graphs and tables of `bundle`; vectors that the device has made may be kept in `folder`."""

    def __init__(self, bundle: Bundle, folder: Path):
        self.bundle, self.folder, self.items = bundle, folder, bundle.manifest.item_count
        self.graphs: dict[str, Graph] = {}
        self._static: dict[str, Rows] = {table.name: open_table(bundle, table).rows for table in bundle.config.tables}
        if bundle.config.learning is not None:
            self._static |= self._prepared(bundle.config.learning, dict(self._static))

    def graph(self, path: str, data: str | None = None) -> Graph:
        """Return a graph of the bundle; `data` is the file of its large tensors."""
        if path not in self.graphs:
            beside = None if data is None else self.bundle.file(data)
            self.graphs[path] = Graph(self.bundle.file(path), beside, self.bundle.entry)
        return self.graphs[path]

    def steps(self, learning: Learning, when: Literal["round", "final"]) -> dict[str, Graph]:
        """Return the step graphs by phase name."""
        return {p.name: self.graph(p.graph, p.data) for p in learning.phases if p.when == when and p.epochs}

    def scores(self, path: str, state: State, private: Mapping[str, Floats]) -> Floats:
        """Return scores of every item, float32 [items], by a score graph and these private tensors."""
        dense = {f"shared.{name}": value for name, value in state.part("shared").items()}
        dense |= {f"private.{name}": value for name, value in private.items()}
        return Scorer(self.graph(path), self.items).scores(dense, self.context(state), self.rows(state))

    def context(self, state: State) -> npt.NDArray[np.int64] | Windows:
        """Return what scores read of the client's own items: its past positives, the newest of them, or its session."""
        config, own = self.bundle.config, state.tensors["items.own"]
        if config.window is not None:
            return streams.window(state, config.window)
        own = own if len(own) else state.tensors["items.past"]
        return own if config.last is None else window_of(own, np.zeros(len(own), np.int64), config.last)

    def told(self, learning: Learning, path: str, state: State, before: streams.Before) -> Floats:
        """Return what a graph computes of the tensors in `state` and of its session's window."""
        assert self.bundle.config.window is not None
        dense, seen = (
            state.part("shared") | state.part("private"),
            streams.window(state, self.bundle.config.window, before),
        )
        graph = self.graph(path)
        return graph.run({**named(learning, dense), **window_feeds(graph, seen, self.rows(state))})

    def rows(self, state: State) -> dict[str, Rows]:
        """Return the rows of every table: the device's own copy of trained ones, the bundle's of the others."""
        own: dict[str, Rows] = {name: value.__getitem__ for name, value in state.part("table").items()}
        learning = self.bundle.config.learning
        if learning is not None and learning.vectors is not None and state.facts["round"] != learning.round:
            own["vectors"] = self._vectors(learning, learning.vectors, state).__getitem__
        return {**self._static, **own}

    def compared(self, state: State) -> Rows:
        """Return the rows by which items are alike: their vectors, or else the first table of values.

        Neither numbers of tokens are such, nor rows that a graph makes for training. Raises `InputError` where there
        are no others.
        """
        learning, tables = self.bundle.config.learning, self.rows(state)
        made = set() if learning is None else set(learning.prepared)
        for name in sorted((name for name in tables if name not in made), key=lambda name: name != "vectors"):
            if tables[name](np.zeros(1, np.int64)).dtype.kind == "f":
                return tables[name]
        raise InputError(f"bundle {self.bundle.root} has no rows of items to compare; nothing says which are near")

    def tables(self, learning: Learning) -> dict[str, Floats]:
        """The trained tables as the bundle brought them; `InputError` for one that it does not bring."""
        trained = trained_tables(learning)
        for name in trained:
            if name not in self._static:
                raise InputError(
                    f"bundle {self.bundle.root}: learning has rows of {name}, its files none; export again"
                )
        return {name: np.asarray(self._static[name](slice(None)), np.float32) for name in trained}

    def _prepared(self, learning: Learning, tables: Mapping[str, Rows]) -> dict[str, Rows]:
        def opened(path: str) -> Callable[[], Graph]:
            return lambda: self.graph(path, learning.vectors_data)

        return {name: Prepared(opened(path), tables, self.items).rows for name, path in learning.prepared.items()}

    def _vectors(self, learning: Learning, path: str, state: State) -> Floats:
        shared, kept = state.part("shared"), Kept(self.folder, self.bundle.manifest.bundle_id)
        vectors = kept.of(shared)
        if vectors is None or len(vectors) != self.items:
            graph = self.graph(path, learning.vectors_data)
            vectors = read_vectors(graph, shared, self._static, self.items)
            kept.keep(shared, vectors)
        return vectors
