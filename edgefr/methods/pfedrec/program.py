"""PFedRec is the local program of dual personalisation, first the scorer, then the item vectors."""

from __future__ import annotations

from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.losses import first_of, form_of, init_rows, init_scorer, learning, linear_scores, scores_of, worth
from edgefr.methods.pfedrec.settings import PFedRecSettings
from export.batches import Batch
from export.given import Given
from export.program import Form, LocalProgram, Phase, Tensors, TensorSpec


class PFedRec(LocalProgram):
    """PFedRec scores by w_u · q_i + b_u; scorer w_u [dim], b_u is private, the item table is shared.

    A round has two phases on the same examples: "scorer" trains w_u and b_u with the items fixed, then "item" trains
    item rows with that scorer fixed. A phase runs all epochs before the next one, or they alternate by batch (`turns`).

    >>> program = PFedRec(PFedRecSettings(dim=4), items=10, local_epochs=1)
    >>> [(phase.name, phase.trains) for phase in program.phases]
    [('scorer', ('scorer.weight', 'scorer.bias')), ('item', ('item',))]
    """

    name = "pfedrec"
    pointwise = True
    needs_history = False

    def __init__(self, settings: PFedRecSettings, items: int, local_epochs: int, counted: int | None = None):
        self.settings = settings
        self.frozen: dict[str, Tensor] = {}
        self.specs = {
            "item": TensorSpec((items, settings.dim), "shared", "rows"),
            "scorer.weight": TensorSpec((settings.dim,), "private"),
            "scorer.bias": TensorSpec((1,), "private"),
        }
        every, scorer = tuple(self.specs), ("scorer.weight", "scorer.bias")
        item_lr = settings.item_lr or settings.lr * (counted or items) * settings.item_times
        alternates = {"phases": False, "batches": True}[settings.turns]
        self.phases = (
            Phase(
                "scorer",
                every,
                scorer,
                local_epochs,
                "sgd",
                dict.fromkeys(scorer, settings.lr),
                draws=purposes.EXAMPLES,
                which=settings.objective.which,
            ),
            Phase(
                "item",
                every,
                ("item",),
                local_epochs,
                "sgd",
                {"item": item_lr},
                draws=purposes.EXAMPLES,
                which=settings.objective.which,
                alternates=alternates,
            ),
        )
        learning(self, settings)

    @property
    def score_form(self) -> Form | None:
        return form_of(self.settings, "item", "scorer.weight", bias="scorer.bias")

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {"item": init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)} | first_of(
            self.settings
        )

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return init_scorer(seed, self.settings.dim, len(clients))

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors["scorer.weight"])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return linear_scores(batch, user, vectors, tensors["scorer.bias"])

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        return worth(scores_of(self, tensors, batch), batch, self.settings, tensors)


def build(settings: PFedRecSettings, given: Given) -> PFedRec:
    return PFedRec(settings, given.items, given.local_epochs, given.counted)
