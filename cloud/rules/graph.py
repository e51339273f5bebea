"""GPFedRec's server: each client gets the mean of clients that are like it, and all get the mean of these means."""

from __future__ import annotations

from cloud.graph_settings import GraphSettings
from cloud.rule import AggregationSettings, Answer, Received, Rule


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
        return Answer(moved(before, update, uploads.clients, settings.server_lr), mix)
