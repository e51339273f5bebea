"""Users are drawn into folds: each has a model of its own, which did not learn from what they have in one domain.

A cold user is one of whom nothing is known in a domain. To test every user as cold, and none by a model that met what
the user has there, users are drawn into folds, and each fold has a learner of its own (cross-fitting). Side by side
their vectors are one model: an item has all of its vectors, a user only that of the own fold, and zeros elsewhere, so
that an inner product is that of one learner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from cloud import random_streams as purposes
from cloud.references.factors import Factors
from cloud.references.reference import Reference
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
