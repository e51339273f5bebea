"""Rows that follow from a bundle's tables alone are made when a step first reads them, and kept while there is room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.graph import Graph
from edge.scorer import Rows, rows_of
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
