"""FedRecon of a size that a test can follow."""

from __future__ import annotations

from edgefr.methods.fedrecon import program
from edgefr.methods.fedrecon.settings import FedReconSettings


class FedRecon(program.FedRecon):
    """The method of the table, whose vectors are long and learn fast."""

    def __init__(self, items: int, support: float = 0.5):
        how = {"dim": 8, "rebuild_lr": 0.5, "item_lr": 20.0, "init_scale": 0.3, "support": support}
        super().__init__(FedReconSettings.model_validate(how), items, local_epochs=2)
