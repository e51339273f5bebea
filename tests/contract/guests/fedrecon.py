"""FedRecon (Singhal et al., NeurIPS 2021): the user's vector is rebuilt in every round, and the items learn from it."""

from __future__ import annotations

from dataclasses import replace

from edge.sampling import Selection
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.program import TensorSpec


class FedRecon(FedMF):
    """FedMF's scores. The user's vector begins anew and learns on the support set, the items on the query set."""

    def __init__(self, items: int, rebuild_epochs: int = 3, epochs: int = 2, support: float = 0.5):
        super().__init__(FedMFSettings(dim=8, lr=0.5, item_lr=20.0, init_scale=0.3), items, epochs)
        self.name = "fedrecon"
        self.specs = {**self.specs, "user": TensorSpec((8,), "private", reset="round")}
        (both,) = self.phases
        sets = [Selection(part="support", support=support), Selection(part="query", support=support)]
        self.phases = (
            replace(both, name="rebuild", trains=("user",), epochs=rebuild_epochs, which=sets[0]),
            replace(both, name="query", trains=("item",), which=sets[1]),
        )
