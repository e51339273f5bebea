"""Does a finished bundle give what torch gives? A sample of its users through the real device code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edge.catalogue import top
from edge.recommender import Recommender
from export.clients import Users, as_float32
from export.graphs import Gathered

SAMPLE = 16  # users compared per bundle
TOP = 10


@dataclass(frozen=True)
class Parity:
    """Users compared, largest score difference, share of users with the same top-10 (None: no users)."""

    users: int
    max_score_error: float | None
    top10_equal: float | None


class Reference:
    """Torch scores of simulated users from the unquantised tensors; item vectors are computed once."""

    def __init__(self, program: Any, shared: Mapping[str, Tensor], users: Users) -> None:
        self._program, self._users = program, users
        self._shared = {name: tensor.detach().cpu().float() for name, tensor in shared.items()}
        with torch.no_grad():
            self._vectors = program.vectors(self._shared, self._batch(self._shared, None))

    def scores(self, user: int) -> np.ndarray:
        """Scores of the whole catalogue, float32 [items]."""
        program, tensors = self._program, self._shared | self._users.tensors(user)
        with torch.no_grad():
            items, past = self._batch(tensors, None), None
            if program.needs_history:
                numbers = torch.from_numpy(self._users.past(user))
                items, past = self._batch(tensors, numbers), self._vectors[numbers]
            personal = program.user(tensors, items, past, self._vectors)
            return as_float32(program.score(tensors, items, self._vectors, personal).reshape(-1))

    def _batch(self, tensors: Mapping[str, Tensor], past: Tensor | None) -> Gathered:
        """The whole catalogue as the items to score, with past positives if given."""
        rows = [t for name, t in tensors.items() if self._program.specs[name].kind == "rows"]
        tables = [*self._program.frozen.values(), *rows]
        history = None
        if past is not None:
            ones = torch.ones(len(past))
            history = Gathered([(table, table[past]) for table in tables], ones, ones / max(1, len(past)))
        return Gathered([(table, table) for table in tables], history=history)


def compare(recommender: Recommender, reference: Reference, users: Users, chosen: Sequence[int]) -> Parity:
    """Compare up to 16 of a bundle's users, evenly spread, with torch.

    The same top-10 means the same ten items after leaving out what the user has seen.
    """
    picked = chosen if len(chosen) <= SAMPLE else [chosen[i * len(chosen) // SAMPLE] for i in range(SAMPLE)]
    errors, same = [], []
    for user in picked:
        expected, got = reference.scores(user), recommender.scores(users.ids[user])
        errors.append(float(np.abs(expected - got).max()))
        left = np.setdiff1d(np.arange(len(got)), users.left_out(user))
        same.append(set(top(expected[left], TOP).tolist()) == set(top(got[left], TOP).tolist()))
    if not picked:
        return Parity(0, None, None)
    return Parity(len(picked), max(errors), float(np.mean(same)))
