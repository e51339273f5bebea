"""Cosines of clients' item tables are taken from their changes or from whole tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.uploads import Rows

Floats = npt.NDArray[np.float64]


def similarities(rows: Rows, clients: int, table: Tensor) -> Floats:
    """Return the cosines of the clients' whole tables, `table` plus their changes: [clients, clients]."""
    from cloud.kernel.pairs import add_products

    items, slots, values = (part.cpu().numpy() for part in rows)
    base = table.detach().cpu().numpy()
    order, ends = by_item(items, len(base))
    along, products = np.zeros(clients), np.zeros((clients, clients))
    add_products(base, ends, slots[order], values[order], along, products)
    products += products.T - np.diag(products.diagonal())
    shared = products + np.square(base, dtype=np.float64).sum() + along[None, :] + along[:, None]
    length = np.sqrt(np.maximum(shared.diagonal(), np.finfo(np.float64).tiny))
    return np.asarray(shared / length[:, None] / length[None, :])


def cosines(tables: Tensor) -> Floats:
    """Return the cosines of tables [clients, items, width]: [clients, clients]."""
    flat = tables.flatten(1)
    products = (flat @ flat.T).double()
    length = products.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return np.asarray((products / length.unsqueeze(1) / length).cpu())


def by_item(items: npt.NDArray[np.int64], catalogue: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order that puts items together, in which those of one stay as they are, and where each item's end.

    >>> order, ends = by_item(np.array([2, 0, 2]), 3)
    >>> order.tolist(), ends.tolist()
    ([1, 0, 2], [1, 1, 3])
    """
    narrow = items.astype(np.uint16) if catalogue <= 2**16 else items  # sixteen bits are sorted by counting
    return np.argsort(narrow, kind="stable"), np.bincount(items, minlength=catalogue).cumsum()
