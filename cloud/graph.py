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
OFTEN, TOGETHER = 5, 64
"""Rows that more than one in `OFTEN` clients changed are multiplied for all clients, `TOGETHER` at a time; other rows
only for the clients that changed them."""


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
    items, slots, values = (part.cpu() for part in rows)
    base = table.detach().cpu()
    along = torch.zeros(clients, dtype=torch.float64)
    along.index_add_(0, slots, (values * base[items]).sum(1, dtype=torch.float64))
    products = base.double().square().sum() + along.unsqueeze(0) + along.unsqueeze(1)
    shared = products.numpy() + _products(items.numpy(), slots.numpy(), values.numpy(), clients)
    length = np.sqrt(np.maximum(shared.diagonal(), np.finfo(np.float64).tiny))
    return np.asarray(shared / length[:, None] / length[None, :])


def cosines(tables: Tensor) -> Floats:
    """Return the cosines of tables [clients, items, width]: [clients, clients]."""
    flat = tables.flatten(1)
    products = (flat @ flat.T).double()
    length = products.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return np.asarray((products / length.unsqueeze(1) / length).cpu())


def _products(
    items: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], values: npt.NDArray[np.float32], clients: int
) -> Floats:
    """Inner products of all clients' changes; of a row only those who changed it meet."""
    order = np.lexsort((slots, items))
    slots, values = slots[order], values[order]
    ends = np.flatnonzero(np.diff(items[order], append=-1)) + 1
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    alone = starts[ends - starts == 1]  # most rows of a large catalogue
    out = np.zeros((clients, clients))
    np.add.at(out, (slots[alone], slots[alone]), np.square(values[alone], dtype=np.float64).sum(1))
    often = ends - starts > max(1, clients / OFTEN)
    many, few = np.flatnonzero(often), np.flatnonzero(~often & (ends - starts > 1))
    for some in np.array_split(many, -(-len(many) // TOGETHER)) if len(many) else []:
        laid = np.zeros((clients, len(some), values.shape[1]), np.float32)
        for at, row in enumerate(some.tolist()):
            laid[slots[starts[row] : ends[row]], at] = values[starts[row] : ends[row]]
        flat = laid.reshape(clients, -1)
        out += flat @ flat.T
    for first, last in zip(starts[few].tolist(), ends[few].tolist(), strict=True):
        who, change = slots[first:last], values[first:last]
        out[who[:, None], who] += change @ change.T
    return out
