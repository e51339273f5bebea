"""This is what methods have in common that share one table of item vectors and learn by an objective of scores."""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.losses import first_of, init_rows, init_scorer, learning, linear_scores, scores_of, worth
from export.batches import Batch
from export.given import Given
from export.program import LocalProgram, Phase, Tensors, TensorSpec


class ItemTable(LocalProgram):
    """This scores by w_u · q_i + b_u; the table of q_i [items, dim] is shared, the linear scorer is private.

    A derived class may have other tensors (`own`), learning rates (`rates`, of all that it trains), phases and scores.
    `counted`: the items that multiply the rate of item rows (None: all).
    """

    pointwise = True
    settings: Any

    def __init__(self, settings: Any, items: int, local_epochs: int, counted: int | None = None):
        self.settings, self.items, self.frozen = settings, items, {}
        self.specs = {"item": TensorSpec((items, settings.dim), "shared", "rows"), **self.own()}
        self.phases = self.work(local_epochs, self.rates(counted or items))
        learning(self, settings)

    @classmethod
    def build(cls, settings: Any, given: Given) -> Self:
        """Make the program of a row of the table of methods."""
        return cls(settings, given.items, given.local_epochs, given.counted)

    def own(self) -> dict[str, TensorSpec]:
        """Return the specs beside the shared table's."""
        return {
            "scorer.weight": TensorSpec((self.settings.dim,), "private"),
            "scorer.bias": TensorSpec((1,), "private"),
        }

    def rates(self, items: int) -> dict[str, float]:
        """Return the learning rate of each tensor that rounds train, where `items` multiply that of item rows."""
        raise NotImplementedError

    def work(self, epochs: int, rates: dict[str, float]) -> tuple[Phase, ...]:
        """Return the phases: one that trains everything at once."""
        return (self.phase("federated", epochs, rates, draws=purposes.FEDERATED),)

    def phase(self, name: str, epochs: int, rates: dict[str, float], **more: Any) -> Phase:
        """Return a phase of SGD that uses all tensors and trains those that have a rate."""
        which = self.settings.objective.which
        return Phase(name, tuple(self.specs), tuple(rates), epochs, "sgd", rates, which=which, **more)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        item = init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)
        return {"item": item} | first_of(self.settings)

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
