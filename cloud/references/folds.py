"""Users are drawn into folds: each has a model of its own, which did not learn from what they have in one domain.

A cold user is one of whom nothing is known in a domain. To test every user as cold, and none by a model that met what
the user has there, users are drawn into folds, and each fold has a learner of its own (cross-fitting). Side by side
their vectors are one model: an item has all of its vectors, a user only that of the own fold, and zeros elsewhere, so
that an inner product is that of one learner.

EMCDR (Man et al., IJCAI 2017) maps vectors of a target domain from those of a source, as users who are in both show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from cloud import random_streams as purposes
from cloud.references.factors import Factors
from cloud.references.reference import Reference, first
from privacy import keyed


def drawn_folds(seed: int, users: int, folds: int) -> npt.NDArray[np.int64]:
    """Draw every user's fold, 0 to folds - 1: int64 [users]."""
    return keyed.integers(keyed.key(seed, purposes.FOLDS), np.arange(users), folds)


def apart(vectors: Sequence[Tensor], fold: Tensor) -> Tensor:
    """Return users' vectors [users, d] by fold side by side, [users, folds * d]: each user's own, zeros elsewhere.

    >>> apart([torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])], torch.tensor([1, 0])).tolist()
    [[0.0, 3.0], [2.0, 0.0]]
    """
    return (torch.stack(list(vectors), dim=1) * one_hot(fold, len(vectors)).unsqueeze(-1)).flatten(1)


class Folds(Reference):
    """This learns by `learners`, one per fold in its order; `fold` [users] says whose model scores a user.

    Items outside a learner's pool have a vector of zeros. Vectors end in zeros up to `width`, so that several learners
    of a reference fit one program.
    """

    def __init__(self, learners: Sequence[Factors], fold: npt.NDArray[np.int64], width: int):
        self.learners, self.fold, self.width = learners, torch.from_numpy(fold), width
        self.epochs, self.patience = learners[0].epochs, learners[0].patience

    def epoch(self, number: int) -> None:
        for learner in self.learners:
            learner.epoch(number)

    def users(self) -> list[Tensor]:
        """Return each learner's vectors of all users, [users, d]."""
        return [learner.own["user"].detach() for learner in self.learners]

    def items(self) -> list[Tensor]:
        """Return each learner's vectors of all items, [items, d], zeros outside its pool."""
        found = []
        for learner in self.learners:
            known = torch.zeros(learner.pooled.items, 1)
            known[torch.from_numpy(learner.pooled.pool)] = 1.0
            found.append(learner.shared["item"].detach() * known)
        return found

    def laid(self) -> Tensor:
        """Return users' vectors, each in the place of its fold: [users, ...]."""
        return apart(self.users(), self.fold)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        item, user = (pad(rows, (0, self.width - rows.shape[1])) for rows in (torch.cat(self.items(), 1), self.laid()))
        return {"item": item}, {"user": user}


@dataclass(frozen=True)
class MappingFit:
    """This says how a mapping is learned: `ridge` weighs the squared length of what is learned, beside a sum of errors.

    The others are an MLP's: the width of its `hidden` layer, and `steps` of Adam by `lr` on all vectors at once.
    """

    ridge: float
    hidden: int
    steps: int
    lr: float
    seed: int


Mapped = Callable[[Tensor], Tensor]


def linear(source: Tensor, target: Tensor, how: MappingFit) -> Mapped:
    """Fit U M to the target's vectors [n, d] in closed form."""
    s, t = source.double(), target.double()
    m = torch.linalg.solve(s.T @ s + how.ridge * torch.eye(s.shape[1], dtype=torch.float64), s.T @ t)
    return lambda vectors: (vectors.double() @ m).float()


def mlp(source: Tensor, target: Tensor, how: MappingFit) -> Mapped:
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


MAPPINGS: Mapping[str, Callable[[Tensor, Tensor, MappingFit], Mapped]] = MappingProxyType(
    {"linear": linear, "mlp": mlp}
)
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
        how: MappingFit,
    ):
        super().__init__(learners, fold, width)
        self.both, self.mapping, self.how = torch.from_numpy(both), MAPPINGS[mapping], how

    def users(self) -> list[Tensor]:
        return [self._mapped(number, own) for number, own in enumerate(super().users())]

    def _mapped(self, number: int, own: Tensor) -> Tensor:
        """Return what the vectors of the source are mapped to, without looking at the fold's users: [users, d]."""
        shown = self.both & (self.fold != number)
        return self.mapping(self.source[shown], own[shown], self.how)(self.source)
