"""A device uses this of a bundle: its graphs, opened once, and its tables beneath the device's own rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge import session_state as streams
from edge.bundle import Bundle
from edge.catalogue import open_table
from edge.graph import Graph
from edge.learning import Learning
from edge.scorer import Rows, placed, rows_of, scores, window_feeds
from edge.sessions import Windows, window_of
from edge.state import State
from edge.verified_files import mapped_array
from privacy.errors import InputError
from privacy.files import write_atomic

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
            graph = self._open()
            rows = graph.run(rows_of(graph, "items", np.array(some), self._tables))
            if rows.ndim != 2 or len(rows) != len(some) or not np.isfinite(rows).all():
                raise InputError(f"{graph.path} gives no row of finite numbers for each item; export again")
            found |= dict(zip(some, rows, strict=True))
            for item, row in zip(some, rows, strict=True):
                if row.nbytes <= self._left:
                    self._kept[item], self._left = row.copy(), self._left - row.nbytes
        return np.stack([found[item] for item in wanted])


def trained_tables(learning: Learning | None) -> list[str]:
    """Name the tables that everybody trains, of which a device has a copy of its own."""
    tensors = [] if learning is None else learning.tensors
    return [tensor.name for tensor in tensors if tensor.kind == "rows" and tensor.place == "shared"]


def trained_mb(bundle: Bundle) -> float:
    """Return the memory that one copy of a bundle's trained tables takes, MB (10^6 bytes)."""
    trained = trained_tables(bundle.config.learning)
    widths = [table.width for table in bundle.config.tables if table.name in trained]
    return sum(widths) * bundle.manifest.item_count * 4e-6


class Model:
    """These are the graphs and tables of `bundle`; vectors that the device has made may be kept in `folder`."""

    def __init__(self, bundle: Bundle, folder: Path):
        self.bundle, self.folder, self.items = bundle, folder, bundle.manifest.item_count
        self.graphs: dict[str, Graph] = {}
        self._static: dict[str, Rows] = {table.name: open_table(bundle, table) for table in bundle.config.tables}
        if (learning := bundle.config.learning) is not None:
            given = dict(self._static)
            for name, path in learning.prepared.items():
                opened = partial(self.graph, path, learning.vectors_data)
                self._static[name] = Prepared(opened, given, self.items).rows

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
        dense = placed(state.part("shared"), private)
        return scores(self.graph(path), self.items, dense, self.context(state), self.rows(state))

    def context(self, state: State) -> npt.NDArray[np.int64] | Windows:
        """Return what scores read of the client's own items: its past positives, the newest of them, or its session."""
        config, own = self.bundle.config, state.tensors["items.own"]
        if config.window is not None:
            return streams.window(state, config.window)
        own = own if len(own) else state.tensors["items.past"]
        return own if config.last is None else window_of(own, np.zeros(len(own), np.int64), config.last)

    def told(self, path: str, state: State, before: streams.Before) -> Floats:
        """Return what a graph computes of the tensors in `state` and of its session's window."""
        assert self.bundle.config.window is not None
        graph, dense = self.graph(path), placed(state.part("shared"), state.part("private"))
        seen = streams.window(state, self.bundle.config.window, before)
        return graph.run({**dense, **window_feeds(graph, seen, self.rows(state))})

    def rows(self, state: State) -> dict[str, Rows]:
        """Return the rows of every table: the device's own copy of trained ones, the bundle's of the others."""
        own: dict[str, Rows] = {name: value.__getitem__ for name, value in state.part("table").items()}
        learning = self.bundle.config.learning
        if learning is not None and learning.vectors is not None and state.facts["round"] != learning.round:
            own["vectors"] = self._vectors(learning, learning.vectors, state).__getitem__
        return {**self._static, **own}

    def compared(self, state: State) -> Rows:
        """Return the rows by which items are alike: their vectors, or else the first table of values.

        Rows that a graph makes for training are not such. Raises `InputError` where there are no others.
        """
        learning, tables = self.bundle.config.learning, self.rows(state)
        made = set() if learning is None else set(learning.prepared)
        for name in sorted((name for name in tables if name not in made), key=lambda name: name != "vectors"):
            if tables[name](np.zeros(1, np.int64)).dtype.kind == "f":
                return tables[name]
        raise InputError(f"bundle {self.bundle.root} has no rows of items to compare; nothing says which are near")

    def tables(self) -> dict[str, Floats]:
        """Return the trained tables as the bundle brought them; `InputError` for one that it does not bring."""
        trained = trained_tables(self.bundle.config.learning)
        for name in trained:
            if name not in self._static:
                raise InputError(
                    f"bundle {self.bundle.root}: learning has rows of {name}, its files none; export again"
                )
        return {name: np.asarray(self._static[name](slice(None)), np.float32) for name in trained}

    def _vectors(self, learning: Learning, path: str, state: State) -> Floats:
        shared, kept = state.part("shared"), VectorCache(self.folder, self.bundle.manifest.bundle_id)
        vectors = kept.of(shared)
        if vectors is None or len(vectors) != self.items:
            graph = self.graph(path, learning.vectors_data)
            dense = placed(shared, {})
            parts = [slice(at, min(at + TITLES, self.items)) for at in range(0, self.items, TITLES)]
            vectors = np.concatenate([graph.run(dense | rows_of(graph, "items", part, self._static)) for part in parts])
            if len(vectors) != self.items or not np.isfinite(vectors).all():
                what = "gives vectors that are not finite numbers, one row per item"
                raise InputError(f"{graph.path} {what}; undo the update")
            kept.keep(shared, vectors)
        return vectors


TITLES = 64  # read at once: bounds memory whatever the catalogue's size


class VectorCache:
    """These are vectors on disk under the digest of their bundle and its tensors; damaged ones are made again."""

    def __init__(self, folder: Path, bundle_id: str) -> None:
        self._folder, self._bundle_id = folder, bundle_id

    def of(self, shared: Mapping[str, Floats]) -> Floats | None:
        """Return the vectors of these tensors; None when they are not there."""
        for path in self._folder.glob(f"{self._start(shared)}*.npy"):
            with suppress(OSError, ValueError):
                found: Floats = mapped_array(path)
                if found.dtype == np.float32 and found.ndim == 2 and path.stem.endswith(_digest(found)):
                    return found
        return None

    def keep(self, shared: Mapping[str, Floats], vectors: Floats) -> None:
        """Keep them in place of all others. Where they cannot be written they are made again the next time."""
        path = self._folder / f"{self._start(shared)}{_digest(vectors)}.npy"
        with suppress(InputError, OSError):
            write_atomic(path, lambda file: np.save(file, vectors, allow_pickle=False), mode=0o600)
            for other in self._folder.glob("vectors-*.npy"):
                if other != path:
                    other.unlink(missing_ok=True)

    def _start(self, shared: Mapping[str, Floats]) -> str:
        """Return how names of files with these tensors' vectors start; they end with a digest of the vectors."""
        whole = hashlib.sha256(self._bundle_id.encode())
        for name in sorted(shared):
            whole.update(name.encode())
            whole.update(np.asarray(shared[name], order="C").tobytes())
        return f"vectors-{whole.hexdigest()[:16]}-"


def _digest(vectors: Floats) -> str:
    return hashlib.sha256(np.asarray(vectors, order="C").data).hexdigest()[:16]
