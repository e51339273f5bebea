"""This scores the whole catalogue for one client, by a score graph and the tables it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.graph import Graph
from edge.sessions import Windows
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Rows = Callable[[Any], npt.NDArray[Any]]
"""Rows of a table for a slice or an array of items."""

BLOCK = 4096
"""Items scored in one call: bounds memory whatever the catalogue's size."""


def scores(
    graph: Graph, items: int, dense: Mapping[str, Floats], context: Ints | Windows, tables: Mapping[str, Rows]
) -> Floats:
    """Return a graph's scores (logits) of all `items` of the catalogue, float32 [items].

    `dense`: "shared.X" and "private.X". `context`: the client's past positives, or its window where the graph reads a
    session. Raises `InputError` for a table that nobody has, and for scores that are not finite.
    """
    out = np.empty(items, np.float32)
    past = window_feeds if isinstance(context, Windows) else history_feeds
    feeds: dict[str, npt.NDArray[Any]] = {**dense, **past(graph, context, tables)}  # type: ignore[arg-type]
    for start in range(0, items, BLOCK):
        part = slice(start, min(start + BLOCK, items))
        scored = graph.run(feeds | rows_of(graph, "items", part, tables))
        if scored.shape != out[part].shape:
            raise InputError(f"{graph.path} gives {scored.shape} scores for {out[part].shape} items")
        out[part] = scored
    if not np.isfinite(out).all():
        raise InputError(f"{graph.path} gives scores that are not finite; the exported model has diverged")
    return out


def placed(shared: Mapping[str, Floats], private: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return dense tensors by the names of a graph's inputs."""
    return {f"shared.{n}": value for n, value in shared.items()} | {f"private.{n}": v for n, v in private.items()}


def history_feeds(graph: Graph, context: Ints, tables: Mapping[str, Rows]) -> dict[str, npt.NDArray[Any]]:
    """Return a graph's inputs about the client's past positives; without any, one row of padding of weight 0."""
    rows = context if len(context) else np.zeros(1, np.int64)
    label = np.full(len(rows), 1 if len(context) else 0, np.float32)
    feeds: dict[str, npt.NDArray[Any]] = {"label.history": label, "weight.history": label / np.float32(len(rows))}
    return feeds | rows_of(graph, "history", rows, tables)


def window_feeds(graph: Graph, window: Windows, tables: Mapping[str, Rows]) -> dict[str, npt.NDArray[Any]]:
    """Return a graph's inputs about the one window of `window`."""
    feeds: dict[str, npt.NDArray[Any]] = {"label.history": window.real[0], "times.history": window.times[0]}
    return feeds | rows_of(graph, "history", window.items[0], tables)


def rows_of(graph: Graph, role: str, items: Any, tables: Mapping[str, Rows]) -> dict[str, npt.NDArray[Any]]:
    """Return a graph's inputs `role.T`: rows of every table that it reads in that role; `InputError` without it."""
    wanted = [name.removeprefix(f"{role}.") for name in graph.inputs if name.startswith(f"{role}.")]
    for name in wanted:
        if name not in tables:
            raise InputError(f"{graph.path} reads table '{name}', which the bundle does not have; export again")
    return {f"{role}.{name}": tables[name](items) for name in wanted}
