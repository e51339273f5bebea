"""Rows that a device makes before its steps: each once while there is room, and the same rows without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge.model import TOGETHER, Prepared
from privacy.errors import InputError

ITEMS, WIDTH = 40, 3
TOKENS = np.arange(ITEMS * 2, dtype=np.int32).reshape(ITEMS, 2)


class Doubling:
    """Stands for a graph: a row is the item's first token, twice and thrice; what it made is counted."""

    path = "onnx/prepared.states.onnx"

    def __init__(self, spoil: float = 0.0) -> None:
        self.inputs = {"items.tokens": ["n", 2]}
        self.made: list[int] = []
        self.spoil = spoil

    def run(self, feeds: dict[str, Any]) -> Any:
        first = feeds["items.tokens"][:, 0]
        self.made += (first // 2).tolist()
        return np.stack([first, 2 * first, 3 * first], 1).astype(np.float32) + np.float32(self.spoil)


def table(graph: Doubling, room: int) -> Prepared:
    return Prepared(lambda: graph, {"tokens": lambda items: TOKENS[items]}, ITEMS, room)  # type: ignore[arg-type,return-value]


def test_a_row_is_made_once_whoever_asks() -> None:
    graph = Doubling()
    rows = table(graph, 1 << 20).rows
    np.testing.assert_array_equal(rows(np.array([3, 1, 3])), [[6, 12, 18], [2, 4, 6], [6, 12, 18]])
    np.testing.assert_array_equal(rows(slice(1, 4))[:, 0], [2, 4, 6])
    assert graph.made == [3, 1, 2]
    assert len(rows(np.arange(ITEMS))) == ITEMS
    assert len(graph.made) == ITEMS > 2 * TOGETHER


def test_beyond_its_room_rows_are_made_again_and_are_the_same() -> None:
    graph = Doubling()
    rows = table(graph, 2 * 4 * WIDTH).rows
    first = rows(np.arange(5))
    np.testing.assert_array_equal(rows(np.arange(5)), first)
    assert graph.made == [0, 1, 2, 3, 4, 2, 3, 4], "the first two are kept"


def test_rows_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="no row of finite numbers"):
        table(Doubling(float("nan")), 99).rows(np.array([1]))
