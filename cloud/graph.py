"""GPFedRec's server rule says who is like whom, and what each client gets of them (Zhang et al., KDD 2024).

    uploads → cosine of the clients' item tables → neighbours → each client's mean of them → the mean of these means

A client's table is the broadcast plus its change, and only changes are looked at: with d_v the change of client v and W
the relations, whose rows sum to 1, client u gets T + Σ_v W_uv d_v, and the next broadcast is the mean of all these.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cloud.graph_settings import GraphSettings
from cloud.similarities import SIMILARITIES
from cloud.uploads import PAIRS_LIMIT, Rows
from privacy.errors import InputError


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
