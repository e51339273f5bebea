"""A device says what a recommendation leans on: the weights of its user's last items, by the bundle's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.catalogue import Catalogue
from edge.graph import Graph
from edge.scorer import Rows, rows_of, window_feeds
from edge.sessions import Windows
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Named = Callable[[int, float], tuple[str, str, float]]
"""Gives (id, title, value) of an item's number and a value."""

CLOSE = 1e-3
"""How far from 1 an item's weights may sum: more is no share of anything."""


@dataclass(frozen=True)
class Lean:
    """This is an item that the user had, and the share that a recommendation leans on it."""

    item: str
    title: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """This is an item, and what its score leans on: the user's newest items, the newest last. Weights sum to 1."""

    item: str
    title: str
    leans: tuple[Lean, ...]


def explained(
    bundle: Bundle, dense: Mapping[str, Floats], context: Ints | Windows, tables: Mapping[str, Rows], items: Ints
) -> list[Explanation]:
    """Return what each of `items` leans on, by a bundle's graph, a client's tensors and what it had last.

    Raises `InputError` for a bundle whose method explains nothing, for a client that had nothing, and for a graph whose
    weights are none.
    """
    path = bundle.config.explain
    if path is None or not isinstance(context, Windows):
        raise InputError(
            f"{bundle.manifest.method} does not say what a recommendation leans on; a method that looks at what "
            "its user had does: fedcar, with a context"
        )
    _check_asked(len(items), context)
    graph = Graph(bundle.file(path), entry=bundle.entry)
    feeds: dict[str, npt.NDArray[Any]] = {**dense, **window_feeds(graph, context, tables)}
    weights = graph.run(feeds | rows_of(graph, "items", items, tables))
    return named(Catalogue(bundle).named, items, context, checked(weights, len(items), context, str(graph.path)))


def _check_asked(items: int, window: Windows) -> None:
    if not (window.real[0] > 0).any():
        raise InputError("nothing to explain from: its user has had no items yet")
    if not items:
        raise InputError("nothing to explain: there is no ranking yet; name items")


def checked(weights: Floats, items: int, window: Windows, what: str) -> Floats:
    """Return weights [items, L] that are shares of the window's real items; `InputError` for others."""
    _check_asked(items, window)
    real = window.real[0] > 0
    if weights.shape != (items, len(real)) or weights.dtype != np.float32:
        raise InputError(f"{what} gives {weights.dtype} {list(weights.shape)} weights for {items} items; export again")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and not weights[:, ~real].any()):
        raise InputError(f"{what} gives weights that are no shares of what the user had; export again")
    if (np.abs(weights.sum(axis=1, dtype=np.float64) - 1) > CLOSE).any():
        raise InputError(f"{what} gives weights that do not sum to 1; export again")
    return weights


def named(name: Named, items: Ints, window: Windows, weights: Floats) -> list[Explanation]:
    """Return weights [items, L] by the names of items and of what they lean on."""
    places = np.flatnonzero(window.real[0] > 0).tolist()

    def one(item: int, row: Sequence[float]) -> Explanation:
        had = [name(int(window.items[0, place]), row[place]) for place in places]
        return Explanation(*name(item, 0.0)[:2], tuple(Lean(*lean) for lean in had))

    return [one(int(item), row.tolist()) for item, row in zip(items, weights, strict=True)]
