"""PIECK finds out which items are popular by how the table changes, and makes the target like them (ICDE 2024).

Rows of popular items move most, since most clients train them. The paper's attackers watch some rounds and attack then;
here they go on watching while they attack. Before any row has moved, they upload nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgefr.engine.attacks.attackers import Known

POPULAR = 10
"""Items that are taken for the popular ones."""


def popular(known: Known) -> tuple[Tensor, Tensor]:
    """Return the items that moved most, most first, without the target: int64 [N], and how far, [N]."""
    moved = known.moved.clone()
    moved[known.target] = -1.0
    far, items = moved.sort(descending=True, stable=True)
    found = far[:POPULAR] > 0
    return items[:POPULAR][found], far[:POPULAR][found]


def like_popular_items(known: Known) -> Tensor:
    """Return the mean direction of the popular items' rows, by how far these moved (IPE)."""
    items, far = popular(known)
    return far @ torch.nn.functional.normalize(known.table[items], dim=1)


def liked_by_their_users(known: Known) -> Tensor:
    """Return the gradient of the target's log sigmoid scores, where users are rows of popular items (UEA)."""
    items, _ = popular(known)
    users = known.table[items]
    return torch.sigmoid(-(users @ known.table[known.target])) @ users
