"""EASE^R is a central reference in closed form: a linear model of items by items (Steck, WWW 2019)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.references.pooling import Pooled
from cloud.references.reference import Reference
from privacy.errors import InputError

_MOST_BYTES = 1 << 34
"""A run takes no more memory than this for its dense tables."""


def weights(interactions: npt.NDArray[np.float64], ridge: float) -> npt.NDArray[np.float64]:
    """Return B [items, items] of EASE^R from X [users, items], 0 or 1: X B is close to X, and B's diagonal is 0."""
    return of_gram(interactions.T @ interactions, ridge)


def of_gram(gram: npt.NDArray[np.float64], ridge: float) -> npt.NDArray[np.float64]:
    """Return B as `weights` does, from X'X."""
    p = np.linalg.inv(gram + ridge * np.eye(len(gram)))  # EASE^R Eq. 8: P = (X'X + lambda I)^-1
    b = p / -np.diag(p)  # EASE^R Eq. 8: B_ij = -P_ij / P_jj
    np.fill_diagonal(b, 0.0)
    return np.asarray(b)


def check_size(users: int, items: int) -> None:
    """Raise `InputError` where the dense tables, X in two precisions and four of items by items, take too much."""
    needed = users * items * (4 + 8) + items * items * 4 * 8
    if needed > _MOST_BYTES:
        raise InputError(
            f"EASE^R of {users:,} users and {items:,} items takes {needed / 2**30:,.0f} GiB of dense tables, more than "
            f"{_MOST_BYTES >> 30}; drop thin ones by data_options.user_core and item_core, where the data set has "
            "these, or take method=mf"
        )


class Ease(Reference):
    """This scores item j for a user by the sum of B_ij over the items i that the user has. It has one epoch."""

    epochs = 1

    def __init__(self, pooled: Pooled, ridge: float):
        check_size(pooled.users, pooled.items)
        self.pooled, self.ridge = pooled, ridge
        self.had = np.zeros((pooled.users, pooled.items), np.float32)
        self.had[pooled.user, pooled.item] = 1.0
        self.item = torch.zeros(pooled.items, pooled.items)

    def epoch(self, number: int) -> None:
        b = weights(self.had.astype(np.float64), self.ridge)
        self.item = torch.from_numpy(b.T.astype(np.float32))

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {"item": self.item}, {"user": torch.from_numpy(self.had)}
