"""GPFedRec's server: each client gets the mean of clients that are like it, and all get the mean of these means."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Answer, Received, Rule
from cloud.similarities import SIMILARITIES
from privacy.setting_scope import ReadWith, Settings, named_in


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
    """This rule takes means along a graph of similar clients."""

    name = "graph"
    settings = GraphSettings
    citation = "GPFedRec: Zhang et al., KDD 2024"
    is_sum = False
    personal = True

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        """The mean of the clients' answers, and how each is mixed of the cohort's tables."""
        import torch

        from cloud.aggregate import moved
        from cloud.graph import relations
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
        return Answer(moved(before, update, uploads.clients, settings), mix)
