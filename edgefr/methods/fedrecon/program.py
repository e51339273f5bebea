"""FedRecon is federated reconstruction (Singhal et al., NeurIPS 2021) of matrix factorisation's user vectors."""

from __future__ import annotations

from dataclasses import replace

from edge.round_init import Normal
from edgefr.config import random_streams as purposes
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedrecon.settings import FedReconSettings
from export.program import Phase, TensorSpec


class FedRecon(FedMF):
    """FedRecon scores by <p_u, q_i> as FedMF does, and no client keeps p_u [dim] between rounds.

    A round cuts a client's items into a support and a query set: p_u is drawn anew and learns on the support set with
    the item table fixed, then the table learns on the query set with p_u fixed (Algorithm 1). Recommending rebuilds p_u
    on all of the client's items (§4.1).

    >>> program = FedRecon(FedReconSettings(dim=4), items=10, local_epochs=1)
    >>> [(phase.name, phase.trains) for phase in program.phases]
    [('reconstruction', ('user',)), ('update', ('item',)), ('recommendation', ('user',))]
    """

    name = "fedrecon"
    settings: FedReconSettings  # type: ignore[assignment]

    def own(self) -> dict[str, TensorSpec]:
        first = Normal(purposes.INIT_USER, self.settings.init_scale)
        return {"user": TensorSpec((self.settings.dim,), "private", reset="round", first=first)}

    def rates(self, items: int) -> dict[str, float]:
        return {"item": self.settings.item_lr or float(self.items), "user": self.settings.rebuild_lr}

    def work(self, epochs: int, rates: dict[str, float]) -> tuple[Phase, ...]:
        both = self.phase("update", epochs, rates)
        support, query = (
            replace(both.which, part=part, support=self.settings.support) for part in ("support", "query")
        )
        alone = replace(both, trains=("user",), epochs=self.settings.rebuild_epochs)
        return (
            replace(alone, name="reconstruction", draws=purposes.RECONSTRUCTION, which=support),
            replace(both, trains=("item",), draws=purposes.FEDERATED, which=query),
            replace(alone, name="recommendation", draws=purposes.RECOMMENDATION, when="final"),
        )
