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
TINY = float(np.finfo(np.float64).tiny)


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


def similarities(rows: Rows, clients: int, table: Tensor) -> Floats:
    """Return the cosines of the clients' whole tables, `table` plus their changes: [clients, clients]."""
    from cloud.compiled.pairs import add_products

    items, slots, values = (part.cpu().numpy() for part in rows)
    base = table.detach().cpu().numpy()
    order, ends = by_item(items, len(base))
    along, products = np.zeros(clients), np.zeros((clients, clients))
    add_products(base, ends, slots[order], values[order], along, products)
    products += products.T - np.diag(products.diagonal())
    shared = products + np.square(base, dtype=np.float64).sum() + along[None, :] + along[:, None]
    length = np.sqrt(np.maximum(shared.diagonal(), TINY))
    return np.asarray(shared / length[:, None] / length[None, :])


def cosines(tables: Tensor) -> Floats:
    """Return the cosines of tables [clients, items, width]: [clients, clients]."""
    flat = tables.flatten(1)
    products = (flat @ flat.T).double()
    length = products.diagonal().clamp_min(TINY).sqrt()
    return np.asarray((products / length.unsqueeze(1) / length).cpu())


def by_item(items: npt.NDArray[np.int64], catalogue: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order that puts items together, in which those of one stay as they are, and where each item's end.

    >>> order, ends = by_item(np.array([2, 0, 2]), 3)
    >>> order.tolist(), ends.tolist()
    ([1, 0, 2], [1, 1, 3])
    """
    narrow = items.astype(np.uint16) if catalogue <= 2**16 else items  # sixteen bits are sorted by counting
    return np.argsort(narrow, kind="stable"), np.bincount(items, minlength=catalogue).cumsum()


SIMILARITIES: Table[Similarity] = Table("similarity", Similarity, group="edgefr.similarities")
SIMILARITIES.register(Similarity("cosine", similarities, "GPFedRec: Zhang et al., KDD 2024", cosines))
SIMILARITIES.register(
    Similarity(
        "distance",
        lambda *tables: 1.0 - similarities(*tables),
        "GPFedRec's released code: 1 - cosine",
        lambda tables: 1.0 - cosines(tables),
    )
)
