"""GPFedRec's server rule says who is like whom, and what each client gets of them (Zhang et al., KDD 2024).

    uploads → cosine of the clients' item tables → neighbours → each client's mean of them → the mean of these means

A client's table is the broadcast plus its change, and only changes are looked at: with d_v the change of client v and W
the relations, whose rows sum to 1, client u gets T + Σ_v W_uv d_v, and the next broadcast is the mean of all these.
Owns: relations and means. Does not own: uploads (`cloud.uploads`), who keeps the answers until they are asked for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.rules.graph import GraphSettings
from cloud.similarities import SIMILARITIES
from cloud.uploads import PAIRS_LIMIT, Rows
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]


def relations(rows: Rows, clients: int, table: Tensor, settings: GraphSettings, laid: Tensor | None = None) -> Tensor:
    """Return each client's weights of the cohort's tables, float64 [clients, clients]; every row sums to 1.

    `rows` are the clients' changes of `table` [items, width]. Neighbours weigh alike: the `neighbours` most similar
    clients, or without that number all above `threshold` x the mean similarity of the cohort; whoever has none keeps
    its own. `laid`: the clients' whole tables [clients, items, width], of which they changed every row. Raises
    `InputError` for a cohort too large to compare all pairs.

    >>> values = torch.tensor([[1.0, 0.0], [0.9, 0.0], [-2.0, 0.0]])
    >>> changes = (torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), values)
    >>> relations(changes, 3, torch.ones(1, 2), GraphSettings()).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    if clients > PAIRS_LIMIT:
        raise InputError(
            f"rule graph compares every pair of a cohort, at most {PAIRS_LIMIT} clients, but {clients} took part; "
            "lower clients_per_round"
        )
    measure = SIMILARITIES[settings.similarity]
    if laid is None:
        alike = measure.between(rows, clients, table)
    elif measure.laid is None:
        raise InputError(f"aggregation.similarity {measure.name} is not made for whole tables: use cosine or distance")
    else:
        alike = measure.laid(laid)
    if settings.neighbours is not None:
        order = np.argsort(-alike, axis=1, kind="stable")[:, : settings.neighbours]
        near = np.zeros(alike.shape, np.bool_)
        np.put_along_axis(near, order, True, axis=1)
    else:
        near = alike > settings.threshold * alike.mean()
    alone = ~near.any(axis=1)
    near[alone, alone] = True
    return torch.from_numpy(near / near.sum(axis=1, keepdims=True))


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
