"""GPFedRec's server: each client gets the mean of clients that are like it, and all get the mean of these means.

    uploads → cosine of the clients' item tables → neighbours → each client's mean of them → the mean of these means

A client's table is the broadcast plus its change, and only changes are looked at: with d_v the change of client v and W
the relations, whose rows sum to 1, client u gets T + Σ_v W_uv d_v, and the next broadcast is the mean of all these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from cloud.rule import AggregationSettings, Answer, Received, Rule
from cloud.similarities import SIMILARITIES
from privacy.errors import InputError
from privacy.setting_scope import ReadWith, Settings, named_in

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.uploads import Rows


class GraphSettings(AggregationSettings, Settings):
    """These settings say who is like whom."""

    rule: Literal["graph"] = "graph"
    neighbours: int | None = Field(
        None, ge=1, description="the so many most similar clients, itself included; empty: by threshold"
    )
    threshold: Annotated[float, ReadWith("neighbours", None)] = Field(
        1.0, ge=0, description="neighbours are above this multiple of the cohort's mean similarity"
    )
    similarity: Annotated[str, named_in(SIMILARITIES)] = Field(
        "cosine",
        description="similarity of two clients' item tables; distance: 1 - cosine, so that neighbours are those "
        "who differ most, as the released code has it",
    )


class Graph(Rule):
    name, settings, citation = "graph", GraphSettings, "GPFedRec: Zhang et al., KDD 2024"
    is_sum = False
    personal = True

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        """Return the mean of the clients' answers, and how each is mixed of the cohort's tables."""
        import torch

        from cloud.aggregate import moved
        from cloud.uploads import weighted

        assert isinstance(settings, GraphSettings)
        uploads, before = received.uploads, received.before
        if uploads is None:
            raise ValueError("rule graph needs every upload")
        if not uploads.clients:
            return Answer(before)
        (table,) = received.tables
        laid = received.laid.get(table)
        mix = relations(uploads.rows[table], uploads.clients, before[table], settings, laid)
        share = mix.mean(0).to(before[table].device)
        update = weighted(uploads, before, share)
        if laid is not None:
            update[table] = torch.tensordot(share.to(laid), laid, dims=1).to(share) - before[table].to(share)
        return Answer(moved(before, update, uploads.clients, settings.rate), mix)


def relations(rows: Rows, clients: int, table: Tensor, settings: GraphSettings, laid: Tensor | None = None) -> Tensor:
    """Return each client's weights of the cohort's tables, float64 [clients, clients]; every row sums to 1.

    `rows` are the clients' changes of `table` [items, width]. Neighbours weigh alike: the `neighbours` most similar
    clients, or without that number all above `threshold` x the mean similarity of the cohort; whoever has none keeps
    its own. `laid`: the clients' whole tables [clients, items, width], of which they changed every row. Raises
    `InputError` for a cohort too large to compare all pairs.

    >>> import torch
    >>> values = torch.tensor([[1.0, 0.0], [0.9, 0.0], [-2.0, 0.0]])
    >>> changes = (torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), values)
    >>> relations(changes, 3, torch.ones(1, 2), GraphSettings()).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    import torch

    from cloud.uploads import check_pairs

    check_pairs(clients, "rule graph")
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
