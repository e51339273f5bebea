"""Does a finished bundle give what torch gives? A sample of its class's users through the real device code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edge.catalogue import top
from edge.recommender import Recommender
from export.graphs import VECTORS, Gathered, Viewed
from export.model import TrainedModel, as_float32

SAMPLE = 16  # users compared per bundle
TOP = 10


@dataclass(frozen=True)
class Parity:
    """This compares two scorers over `users`: their number, largest score difference, share with the same top-10."""

    users: int
    max_score_error: float | None
    top10_equal: float | None


class Reference:
    """Torch scores of simulated users from the unquantised tensors; item vectors are computed once.

    `tables`: other rows in place of item tables', whole tables by name; "vectors" are finished item vectors of clients
    that read texts. `items`: the items to score (None: all).
    """

    def __init__(
        self, model: TrainedModel, tables: Mapping[str, Tensor] | None = None, items: Tensor | None = None
    ) -> None:
        self.model, self._program, self._tables, self._items = model, model.program, tables or {}, items
        self._shared = {name: tensor.detach().cpu().float() for name, tensor in model.shared.items()}
        self._all = self._tables[VECTORS] if VECTORS in self._tables else self._vectors(None)
        self._own = self._all if items is None else self._all[items]

    def scores(self, user: int) -> np.ndarray:
        """Return scores of the items, float32 [items]."""
        program = self._program
        with torch.no_grad():
            tensors, items, past = self._seen(user, self._items)
            personal = program.user(tensors, items, past, self._own)
            return as_float32(program.score(tensors, items, self._own, personal).reshape(-1))

    def weights(self, user: int, items: Tensor) -> np.ndarray:
        """Return how much items lean on each position of a user's window, float32 [items, L]; where it `explains`."""
        with torch.no_grad():
            tensors, batch, past = self._seen(user, items)
            return as_float32(self._program.explain(tensors, batch, past, self._all[items]))

    def conditioned(self, user: int, items: Tensor) -> np.ndarray:
        """Return items as the user's client has them, float32 [items, values].

        These are their vectors, and beside each what the client makes of it where that differs from item to item.
        """
        with torch.no_grad():
            tensors, batch, past = self._seen(user, items)
            vectors = self._all[items]
            seen = self._program.user(tensors, batch, past, vectors)
            each = seen.ndim == 2 and seen.shape[0] == len(items) > 1
            return as_float32(torch.cat([seen, vectors], dim=-1) if each else vectors)

    def _seen(self, user: int, items: Tensor | None) -> tuple[Mapping[str, Tensor], Gathered, Tensor | None]:
        """Return a user's tensors, items as its candidates, and vectors of what it had."""
        tensors = self._shared | self.model.tensors(user)
        past, history = None, None
        if self._program.needs_history:
            numbers, history = self._history(user, tensors)
            past = self._all[numbers]
        return tensors, Gathered(self._rows(tensors, items), history=history), past

    def _history(self, user: int, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Gathered | Viewed]:
        length = self._program.window
        if length is None:
            numbers = torch.from_numpy(self.model.past(user))
            ones = torch.ones(len(numbers))
            return numbers, Gathered(self._rows(tensors, numbers), ones, ones / max(1, len(numbers)))
        window = self.model.window(user, length)
        numbers, real, times = (torch.from_numpy(part[0]) for part in (window.items, window.real, window.times))
        return numbers, Viewed.of(self._rows(tensors, numbers), real, times)

    def _vectors(self, items: Tensor | None) -> Tensor:
        with torch.no_grad():
            vectors: Tensor = self._program.vectors(self._shared, Gathered(self._rows(self._shared, items)))
        return vectors

    def _rows(self, tensors: Mapping[str, Tensor], items: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        tables = {n: t for n, t in tensors.items() if self._program.specs[n].kind == "rows"} | self._program.frozen
        rows = {name: self._tables.get(name, table) for name, table in tables.items()}
        return [(table, rows[name] if items is None else rows[name][items]) for name, table in tables.items()]


def compare(recommender: Recommender, reference: Reference, chosen: Sequence[int]) -> Parity:
    """Compare up to 16 users of a bundle's class, evenly spread, with torch; the bundle itself need not carry them.

    The same top-10 means the same ten items after leaving out what the user has seen.
    """
    picked = chosen if len(chosen) <= SAMPLE else [chosen[i * len(chosen) // SAMPLE] for i in range(SAMPLE)]
    errors, same = [], []
    for user in picked:
        expected, got = reference.scores(user), recommender.scores(reference.model.state(user))
        errors.append(float(np.abs(expected - got).max()))
        left = np.setdiff1d(np.arange(len(got)), reference.model.left_out(user))
        same.append(set(top(expected[left], TOP).tolist()) == set(top(got[left], TOP).tolist()))
    if not picked:
        return Parity(0, None, None)
    return Parity(len(picked), max(errors), float(np.mean(same)))
