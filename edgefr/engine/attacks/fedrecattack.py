"""FedRecAttack guesses users from public interactions, and lifts the target above their lists (ICDE 2022).

The paper fits users by gradient steps; here a user is the least-squares solution of scores 1 on its public items and -1
on four times as many random ones, as clients learn theirs from drawn negatives. The paper lowers the items above the
target, too; here the target alone is uploaded.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cloud.host_transfer import there
from edge.ragged import Ragged
from edgefr.engine.attacks.attackers import Known

LIST = 10
"""Length of the lists that the target is to be in."""
NEGATIVES = 4
"""Random items for a public one."""
RIDGE = 1e-3
"""Weight of a user's squared length, in mean squared values of the table."""
USERS = 1024
"""Users that are scored at a time."""


def guessed(table: Tensor, had: Ragged) -> Tensor:
    """Return users with these items as vectors: [users, d], float64, from a `table` [items, d] of float64."""
    items, rows = there(had.values.astype(np.int64), table.device), there(had.rows, table.device)
    own, every, width = table[items], table.T @ table, table.shape[1]
    drawn = NEGATIVES * there(had.counts.astype(np.float64), table.device) / len(table)
    ridge = RIDGE * every.diagonal().mean() / len(table) * torch.eye(width, dtype=table.dtype, device=table.device)
    system = drawn.view(-1, 1, 1) * every + ridge
    system.index_add_(0, rows, own.unsqueeze(2) * own.unsqueeze(1))
    wanted = (-drawn.unsqueeze(1) * table.sum(0)).index_add_(0, rows, own)
    return torch.linalg.solve(system, wanted)


def above_their_lists(known: Known) -> Tensor:
    """Return the gradient, over the target's row, of its margins to the last items of the guessed users' lists.

    A user whose list has the target counts exp(-margin), any other 1; who had the target publicly counts for nothing.
    """
    table, target = known.table.double(), known.target
    wanted, everybody = torch.zeros_like(table[target]), np.flatnonzero(known.public.counts)
    for start in range(0, len(everybody), USERS):
        had = known.public.take(everybody[start : start + USERS])
        users = guessed(table, had)
        scores = users @ table.T
        own, out = scores[:, target].clone(), torch.zeros_like(scores, dtype=torch.bool)
        out[there(had.rows, table.device), there(had.values.astype(np.int64), table.device)] = True
        weight = (~out[:, target]).double()
        out[:, target] = True
        last = scores.masked_fill(out, -torch.inf).topk(min(LIST, len(table) - 1), dim=1).values[:, -1]
        wanted += (weight * torch.exp((last - own).clamp_max(0.0))) @ users
    return wanted.to(known.table)
