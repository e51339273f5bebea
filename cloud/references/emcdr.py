"""EMCDR is a central reference: vectors of a target domain are mapped from those of a source (Man et al., IJCAI 2017).

Users who are in both domains show how a user's vector of one becomes that of the other. Cold users, of whom only what
they have in the source is known, get theirs of the target by what was learned on others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.references.factors import Factors
from cloud.references.folds import Folds
from cloud.references.reference import first


@dataclass(frozen=True)
class Fit:
    """This says how a mapping is learned: `ridge` weighs the squared length of what is learned, beside a sum of errors.

    The others are an MLP's: the width of its `hidden` layer, and `steps` of Adam by `lr` on all vectors at once.
    """

    ridge: float
    hidden: int
    steps: int
    lr: float
    seed: int


Mapped = Callable[[Tensor], Tensor]


def linear(source: Tensor, target: Tensor, how: Fit) -> Mapped:
    """Fit U M to the target's vectors [n, d] in closed form."""
    s, t = source.double(), target.double()
    m = torch.linalg.solve(s.T @ s + how.ridge * torch.eye(s.shape[1], dtype=torch.float64), s.T @ t)
    return lambda vectors: (vectors.double() @ m).float()


def mlp(source: Tensor, target: Tensor, how: Fit) -> Mapped:
    """Fit an MLP of one hidden layer, with tanh, to the target's vectors [n, d]."""
    width, hidden = source.shape[1], how.hidden
    shapes = {"mapping.0": (width, hidden), "mapping.1": (hidden, width)}
    weights = [first(how.seed, name, shape, shape[0] ** -0.5) for name, shape in shapes.items()]
    leaves = [*weights, torch.zeros(hidden), torch.zeros(width)]
    one, two, inner, outer = (leaf.requires_grad_() for leaf in leaves)

    def mapped(vectors: Tensor) -> Tensor:
        return torch.tanh(vectors @ one + inner) @ two + outer

    adam = torch.optim.Adam(leaves, how.lr)
    for _ in range(how.steps):
        lengths = one.square().sum() + two.square().sum()
        loss = ((mapped(source) - target).square().sum() + how.ridge * lengths) / len(source)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return lambda vectors: mapped(vectors).detach()


MAPPINGS: Mapping[str, Callable[[Tensor, Tensor, Fit], Mapped]] = MappingProxyType({"linear": linear, "mlp": mlp})
"""What maps a user's vector from one domain to the other, by name."""


class AfterSource(Folds):
    """This learns in the target after a learner of the source, whose vectors, `dim` wide, stand before its own.

    An item has zeros in the place of the domain that it is not of.
    """

    def follow(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        dim = self.learners[0].dim
        self.source_items, self.source = shared["item"][:, :dim], own["user"][:, :dim]

    def items(self) -> list[Tensor]:
        return [self.source_items, *super().items()]

    def laid(self) -> Tensor:
        return torch.cat([self.source, super().laid()], 1)


class EMCDR(AfterSource):
    """This maps every user's vector of the source, by what the fold's learner knows of users who are in both domains.

    `both` [users]: who has training interactions in both. Those of a fold are not learned from in that fold.
    """

    def __init__(
        self,
        learners: Sequence[Factors],
        fold: npt.NDArray[np.int64],
        width: int,
        both: npt.NDArray[np.bool_],
        mapping: str,
        how: Fit,
    ):
        super().__init__(learners, fold, width)
        self.both, self.mapping, self.how = torch.from_numpy(both), MAPPINGS[mapping], how

    def users(self) -> list[Tensor]:
        return [self._mapped(number, own) for number, own in enumerate(super().users())]

    def _mapped(self, number: int, own: Tensor) -> Tensor:
        """Return what the vectors of the source are mapped to, without looking at the fold's users: [users, d]."""
        shown = self.both & (self.fold != number)
        return self.mapping(self.source[shown], own[shown], self.how)(self.source)
