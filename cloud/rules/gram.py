"""The server finishes a gradient over the whole catalogue that clients send in two parts, and takes a step of Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from cloud.optimisers import Moments, Stepping
from cloud.rule import AggregationSettings, Answer, Received, Rule

if TYPE_CHECKING:
    from torch import Tensor


GRAM = "gram."
"""A dense tensor of this prefix and a table's name is the sum of the outer products of the table's rows, T'T."""


class GramSettings(AggregationSettings):
    rule: Literal["gram"] = "gram"
    lr: float = Field(0.02, gt=0, allow_inf_nan=False, description="learning rate of the server's Adam")
    ridge: float = Field(
        0.001,
        ge=0,
        allow_inf_nan=False,
        description="weight of the table's squared length in the mean loss: FCF's lambda over the number of users",
    )
    floor: float = Field(1e-8, ge=0, allow_inf_nan=False, description="added to the root of Adam's second moment")

    @model_validator(mode="after")
    def _reads_its_step(self) -> Self:
        if self.server_lr != type(self).model_fields["server_lr"].default:
            raise ValueError("gram moves the table by Adam, which reads lr: drop server_lr")
        return self


class Gram(Rule):
    """This rule moves a table by the mean of what clients changed of its rows and of its Gram matrix.

    A client's loss reads rows T_j of its own items and all other rows through G = T'T alone, so its gradient over the
    whole table is that of its rows plus T (D + D'), where D is that of G (the chain rule). The next broadcast's G is
    that of the new table. A client that began from an older table has its D applied to the present one.
    """

    name = "gram"
    settings = GramSettings
    citation = "FCF: Ammad-ud-din et al. 2019; Adam: Kingma & Ba 2015"
    is_sum = True
    grams = True

    def optimiser(self, settings: AggregationSettings) -> Stepping | None:
        assert isinstance(settings, GramSettings)
        return Moments(settings.lr, settings.floor)

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        """Return each table and its Gram matrix; what is neither moves by the mean."""
        after, sums, weight = received.by_mean(settings), received.total.sums, received.total.weight
        if weight == 0:
            return Answer(after)
        assert received.optimiser is not None
        assert isinstance(settings, GramSettings)
        for name in (name for name in sums if GRAM + name in sums):
            before, of_gram = received.before[name].double(), sums[GRAM + name]
            mean = (sums[name] + before @ (of_gram + of_gram.T)) / weight - 2 * settings.ridge * before
            after[name] = (before + received.optimiser.step(name, mean)).to(received.before[name])
            after[GRAM + name] = gram(after[name])
        return Answer(after)


def gram(table: Tensor) -> Tensor:
    """Return T'T of a table [rows, d], in its dtype: [d, d].

    >>> import torch
    >>> gram(torch.tensor([[1.0, 2.0], [3.0, 0.0]])).tolist()
    [[10.0, 2.0], [2.0, 4.0]]
    """
    return (table.double().T @ table.double()).to(table)
