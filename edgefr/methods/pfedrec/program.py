"""PFedRec is the local program of dual personalisation, first the scorer, then the item vectors."""

from __future__ import annotations

from edgefr.config import random_streams as purposes
from edgefr.methods.item_table import ItemTable
from edgefr.methods.losses import form_of
from edgefr.methods.pfedrec.settings import PFedRecSettings
from export.program import Phase, ScoreForm


class PFedRec(ItemTable):
    """PFedRec scores by w_u · q_i + b_u; scorer w_u [dim], b_u is private, the item table is shared.

    A round has two phases on the same examples: "scorer" trains w_u and b_u with the items fixed, then "item" trains
    item rows with that scorer fixed. A phase runs all epochs before the next one, or they alternate by batch (`turns`).

    >>> program = PFedRec(PFedRecSettings(dim=4), items=10, local_epochs=1)
    >>> [(phase.name, phase.trains) for phase in program.phases]
    [('scorer', ('scorer.weight', 'scorer.bias')), ('item', ('item',))]
    """

    name = "pfedrec"
    settings: PFedRecSettings

    def rates(self, items: int) -> dict[str, float]:
        s = self.settings
        return {"scorer.weight": s.lr, "scorer.bias": s.lr, "item": s.item_lr or s.lr * items * s.item_times}

    def work(self, epochs: int, rates: dict[str, float]) -> tuple[Phase, ...]:
        item = {"item": rates.pop("item")}
        alternates = {"phases": False, "batches": True}[self.settings.turns]
        return (
            self.phase("scorer", epochs, rates, draws=purposes.EXAMPLES),
            self.phase("item", epochs, item, draws=purposes.EXAMPLES, alternates=alternates),
        )

    @property
    def score_form(self) -> ScoreForm | None:
        return form_of(self.settings, "item", "scorer.weight", bias="scorer.bias")
