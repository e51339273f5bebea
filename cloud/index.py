"""An index says how the prototypes nearest to a query are searched. The table needs no torch, to check names early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor


EXACT_MOST = 100_000
"""Prototypes up to which `auto` compares with all."""


@dataclass(frozen=True)
class Index:
    """An index has a name; `search(base, clients, queries, count)` finds rows that may be among the nearest `count`.

    `queries` float32 [C, P] of length 1, of `clients` int64 [C], whose own prototypes are not found. Returns pieces
    int64 [c, m] along the queries, -1 where there are fewer. `ready` raises `InputError` where what it needs is not
    installed.
    """

    name: str
    search: Callable[[Any, Tensor, Tensor, int], list[Tensor]]
    ready: Callable[[], None] = lambda: None


def _library() -> None:
    from cloud.search import library

    library()


INDEXES: Table[Index] = Table("index", Index)
"""How prototypes can be searched."""

INDEXES.register(Index("exact", lambda base, *asked: base.among_all(*asked)))
INDEXES.register(Index("faiss", lambda base, *asked: base.in_clusters(*asked), ready=_library))
INDEXES.register(
    Index("auto", lambda base, *asked: INDEXES["exact" if len(base) <= EXACT_MOST else "faiss"].search(base, *asked))
)
