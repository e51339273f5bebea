"""FedRecon is federated reconstruction (Singhal et al., NeurIPS 2021) of matrix factorisation's user vectors."""

from __future__ import annotations

from dataclasses import replace

from edge.round_init import Normal
from edgefr.config import random_streams as purposes
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.fedrecon.settings import FedReconSettings
from edgefr.methods.objectives import ObjectiveSettings
from export.given import Given
from export.program import TensorSpec


class FedRecon(FedMF):
    """FedRecon scores by <p_u, q_i> as FedMF does, and no client keeps p_u [dim] between rounds.

    A round cuts a client's items into a support and a query set: p_u is drawn anew and learns on the support set with
    the item table fixed, then the table learns on the query set with p_u fixed (Algorithm 1). Recommending rebuilds p_u
    on all of the client's items (§4.1).

    >>> program = FedRecon(FedReconSettings(dim=4), items=10, local_epochs=1)
    >>> [(phase.name, phase.trains) for phase in program.phases]
    [('reconstruction', ('user',)), ('update', ('item',)), ('recommendation', ('user',))]
    """

    def __init__(self, settings: FedReconSettings, items: int, local_epochs: int):
        s, item_lr = settings, float(items) if settings.item_lr is None else settings.item_lr
        rates = {"init_scale": s.init_scale, "lr": s.rebuild_lr, "item_lr": item_lr}
        worth = {name: getattr(s, name) for name in ObjectiveSettings.model_fields}
        factors = FedMFSettings(dim=s.dim, **worth, **rates)
        super().__init__(factors, items, local_epochs)
        self.name, first = "fedrecon", Normal(purposes.INIT_USER, s.init_scale)
        self.specs = {**self.specs, "user": TensorSpec((s.dim,), "private", reset="round", first=first)}
        (both,) = self.phases
        support, query = (replace(both.which, part=part, support=s.support) for part in ("support", "query"))
        alone = replace(both, trains=("user",), epochs=s.rebuild_epochs)
        self.phases = (
            replace(alone, name="reconstruction", draws=purposes.RECONSTRUCTION, which=support),
            replace(both, name="update", trains=("item", *s.objective.learns), which=query),
            replace(alone, name="recommendation", draws=purposes.RECOMMENDATION, when="final"),
        )


def build(settings: FedReconSettings, given: Given) -> FedRecon:
    return FedRecon(settings, given.items, given.local_epochs)
