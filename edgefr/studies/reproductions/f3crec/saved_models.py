"""Saved block models say this about users and items that moved much or little (F3CRec §5.3.2, §5.4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge.ragged import joined
from edge.replay import ranks
from edgefr.data.prepared_data import Prepared
from edgefr.engine.scoring import ModelScorer
from edgefr.experiment.experiment import Experiment
from edgefr.metrics.continual import MASKS, Masks
from edgefr.simulation.evaluation.lists import rank_lists
from edgefr.simulation.prepare import prepare
from edgefr.simulation.program import build_program
from edgefr.simulation.runs.run import Run
from export.program import read_by

if TYPE_CHECKING:
    from torch import Tensor

SHARE = 0.2
"""Share of users, or items, that count as static or as dynamic."""

_AT_ONCE = 256  # users whose ranks of all items are held at once

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def ends(values: npt.ArrayLike, share: float = SHARE) -> tuple[Ints, Ints]:
    """Return the places of the lowest and of the highest `share` of the values, NaN left out.

    At least one each if there are two.

    Of equal values the earlier counts as lower.

    >>> [places.tolist() for places in ends([5.0, 1.0, float("nan"), 3.0, 2.0, 4.0])]
    [[1], [0]]
    """
    numbers = np.asarray(values, np.float64)
    known = np.flatnonzero(~np.isnan(numbers))
    order = known[np.argsort(numbers[known], kind="stable")]
    size = min(max(1, int(share * len(order) + 1e-9)), len(order) // 2)
    return order[:size], order[len(order) - size :]


def item_shift(before: npt.ArrayLike, after: npt.ArrayLike) -> Floats:
    """Return phi, how far each item's vector moved between two tables [n, d]: float64 [n].

    >>> item_shift([[0.0, 0.0, 0.0, 0.0]], [[1.0, 0.0, 1.0, 0.0]]).tolist()
    [1.0]
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    return ((first - second) ** 2).sum(axis=1) / np.sqrt(first.shape[1])  # F3CRec Eq. 8


def rank_change(before: npt.NDArray[np.float32], after: npt.NDArray[np.float32]) -> Floats:
    """Return |old rank - new rank| / old rank of every item, from two tables of scores [C, n]. 1 is the best rank.

    >>> rank_change(np.array([[3.0, 2.0, 1.0]], np.float32), np.array([[1.0, 2.0, 3.0]], np.float32)).round(2).tolist()
    [[2.0, 0.0, 0.67]]
    """
    places = np.broadcast_to(np.arange(before.shape[1]), before.shape)
    old, new = ranks(before, places), ranks(after, places)
    return np.abs(old - new) / old


@dataclass(frozen=True)
class SavedModels:
    """These are the saved models of one run's blocks, each of the block's best round."""

    experiment: Experiment
    prepared: Prepared
    tensors: Mapping[str, Tensor]

    @classmethod
    def read(cls, run: Run, prepared: Prepared) -> SavedModels:
        """Of a run with `evaluation.keep_blocks`; `prepared` is that of its experiment."""
        return cls(run.experiment, prepared, run.read_tensors("blocks"))

    def part(self, block: int, place: str) -> dict[str, Tensor]:
        """ "shared" or "private" tensors after a block, by name."""
        head = f"block{block}.{place}."
        return {name.removeprefix(head): value for name, value in self.tensors.items() if name.startswith(head)}

    def shift(self, block: int) -> Floats:
        """Return the preference shift (Eq. 2) per user after a block's first round; NaN: absent, or no memory."""
        return self.tensors[f"block{block}.shift"].numpy().astype(np.float64)

    def score(self, block: int, users_of: int | None = None, pool_of: int | None = None) -> ModelScorer:
        """Return scores by the shared tensors of a block; private tensors and items may be those of another block."""
        import torch

        program = build_program(self.experiment, self.prepared)
        used = read_by(program.phases)
        private = self.part(block if users_of is None else users_of, "private")
        own = {name: value for name, value in private.items() if name in used}
        now, pool = self.prepared.blocks[block], self.prepared.blocks[block if pool_of is None else pool_of].pool
        items = len(self.prepared.dataset.catalogue)
        return ModelScorer(program, self.part(block, "shared"), own, now.train, pool, items, torch.device("cpu"))

    def on_base(self, block: int, mask: Masks) -> dict[str, Floats]:
        """Return metrics of every user on D0's test items after a block: float64 [users], NaN without test items."""
        after, base = self.prepared.blocks[block], self.prepared.blocks[0]
        users = base.users("test")
        current = joined(after.train.take(users), after.valid.take(users))
        hidden = current if mask == MASKS[0] else joined(after.past.take(users), current)
        found = rank_lists(self.score(block), after.pool, users, base.test.take(users), hidden, [20])
        out = {}
        for metric, values in found.items():
            out[metric] = np.full(len(self.prepared.dataset.users), np.nan)
            out[metric][users] = values
        return out

    def rank_changes(self, block: int) -> tuple[float, float] | None:
        """Return the mean change of ranks from the block before to `block`, of static and of dynamic items.

        None: nobody to ask.

        Asked are the users who trained in the block before and not in this one; items are those that existed before,
        ranked among themselves. Users keep the private tensors of the block before: only the item table moves.
        """
        before, now = self.prepared.blocks[block - 1], self.prepared.blocks[block]
        users = np.setdiff1d(before.users("train"), now.users("train"))
        if not len(users):
            return None
        rows = before.pool.astype(np.int64)
        tables = (self.part(t, "shared")["item"].numpy()[rows] for t in (block - 1, block))
        static, dynamic = ends(item_shift(*tables))
        old, new = self.score(block - 1), self.score(block, users_of=block - 1, pool_of=block - 1)
        sums = np.zeros(2)
        for at in range(0, len(users), _AT_ONCE):
            some = users[at : at + _AT_ONCE]
            changes = rank_change(old(some, None), new(some, None))
            sums += [changes[:, static].mean(axis=1).sum(), changes[:, dynamic].mean(axis=1).sum()]
        return float(sums[0] / len(users)), float(sums[1] / len(users))


class Preparations:
    """This is the prepared data of experiments; the last one is kept, since strategies of one seed share it."""

    def __init__(self, data_dir: Path | None):
        self.data_dir = data_dir
        self._last: tuple[tuple[object, ...], Prepared] | None = None

    def of(self, experiment: Experiment) -> Prepared:
        """Prepare data and blocks of an experiment."""
        key = (experiment.data, experiment.seed, experiment.fidelity, experiment.protocol)
        if self._last is None or self._last[0] != key:
            self._last = (key, prepare(experiment, self.data_dir, "cpu"))
        return self._last[1]
