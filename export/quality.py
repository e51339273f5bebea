"""This measures what smaller numbers cost: the top 10 and the hit rate of simulated users, on unseen items.

Item vectors are all that differs between variants, so a variant is judged by its tables: the cached ones, or, where it
has an encoder, those that its encoder makes of the items' texts, as it would of new items' texts. Everything else is
the trained program in torch with unquantised tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edge.catalogue import top
from export import random_streams as purposes
from export.model import Ints, TrainedModel
from export.parity import Reference
from privacy import keyed

USERS, ITEMS = 256, 2000  # at most so many are looked at: a keyed sample
NEGATIVES, TOP = 99, 10
Tables = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Quality:
    """This says how a variant recommends, beside the reference in fp32.

    `overlap`: of a user's ten best items, the share that both have, mean over users. `hit_rate`: HR@10 of the held-out
    item among 99 that the user has not seen; `kept`: that, as a share of the reference's (1 where the reference hits
    nothing).
    """

    users: int
    overlap: float
    hit_rate: float
    kept: float

    @property
    def least(self) -> float:
        """The lower of both shares, at most 1: what variants are ranked by."""
        return min(self.overlap, self.kept, 1.0)


class Judge:
    """A judge measures variants on a keyed sample of at most 256 users and 2,000 items, numbered by `items`, ascending.

    `model` has held-out items of at least one user; `tables` are the unquantised ones, [catalogue, width] each.
    """

    def __init__(self, model: TrainedModel, tables: Tables, seed: int) -> None:
        self._model, self._tables, held_out = model, tables, model.held_out
        assert held_out is not None
        rows = keyed.choose(keyed.key(seed, purposes.QUALITY_USERS), np.arange(len(held_out.users)), USERS)
        self._chosen, targets = held_out.users[rows], held_out.items[rows]
        drawn = keyed.choose(keyed.key(seed, purposes.QUALITY_ITEMS), model.offered, ITEMS)
        self.items: Ints = np.union1d(targets, drawn).astype(np.int64)
        self._target = np.searchsorted(self.items, targets)
        self._unseen = [~np.isin(self.items, model.left_out(int(user))) for user in self._chosen]
        for row, target in enumerate(self._target):
            self._unseen[row][target] = True
        self._rivals = [self._draw(row, seed) for row in range(len(self._chosen))]
        self._best, self._hits = self._look({})

    def measure(self, tables: Tables) -> Quality:
        """Measure the quality of other rows in place of these tables', whole tables [catalogue, width] by name."""
        best, hits = self._look(tables)
        shares = [len(np.intersect1d(mine, its)) / max(1, len(its)) for mine, its in zip(best, self._best, strict=True)]
        reference = float(self._hits.mean())
        rate = float(hits.mean())
        return Quality(len(hits), float(np.mean(shares)), rate, rate / reference if reference else 1.0)

    def _draw(self, row: int, seed: int) -> Ints:
        open_ = np.flatnonzero(self._unseen[row])
        others = open_[open_ != self._target[row]]
        return keyed.choose(keyed.key(seed, purposes.QUALITY_NEGATIVES, int(self._chosen[row])), others, NEGATIVES)

    def _look(self, tables: Tables) -> tuple[list[Ints], npt.NDArray[np.bool_]]:
        whole = {name: torch.from_numpy(table) for name, table in {**self._tables, **tables}.items()}
        scorer = Reference(self._model, whole, torch.from_numpy(self.items))
        best, hits = [], []
        for row, user in enumerate(self._chosen):
            scores = scorer.scores(int(user))
            open_ = np.flatnonzero(self._unseen[row])
            best.append(open_[top(scores[open_], TOP)])
            hits.append(np.sum(scores[self._rivals[row]] >= scores[self._target[row]]) < TOP)
        return best, np.array(hits, bool)
