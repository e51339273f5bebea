"""A similarity says how alike two clients' item tables are, for rules with neighbours: one entry per measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.uploads import Rows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Similarity:
    """A similarity says how alike every two clients' tables are, `table` plus their changes `rows`.

    `between(rows, clients, table)`: float64 [clients, clients]; neighbours are those with the largest. `laid`: the same
    of tables that are laid out, [clients, items, width] (None: it is not made for them). `citation`: where it is from.
    """

    name: str
    between: Callable[[Rows, int, Tensor], Floats]
    citation: str
    laid: Callable[[Tensor], Floats] | None = None


def _cosine(rows: Rows, clients: int, table: Tensor) -> Floats:
    from cloud.cosines import similarities

    return similarities(rows, clients, table)


def _laid(tables: Tensor) -> Floats:
    from cloud.cosines import cosines

    return cosines(tables)


SIMILARITIES: Table[Similarity] = Table("similarity", Similarity, group="edgefr.similarities")
SIMILARITIES.register(Similarity("cosine", _cosine, "GPFedRec: Zhang et al., KDD 2024", _laid))
SIMILARITIES.register(
    Similarity(
        "distance",
        lambda *tables: 1.0 - _cosine(*tables),
        "GPFedRec's released code: 1 - cosine",
        lambda tables: 1.0 - _laid(tables),
    )
)
