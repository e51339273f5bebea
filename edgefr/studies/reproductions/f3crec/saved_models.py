"""Tables 4, 5 and 7 show what static and dynamic users lose of the base block, and how far items' ranks move.

They are read from saved block models, of FedMF (F3CRec §5.3.2, §5.4.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge.ragged import joined
from edge.replay import ranks
from edgefr.config.sheet import Sheet
from edgefr.data.prepared_data import Prepared
from edgefr.engine.scoring import ModelScorer
from edgefr.experiment.experiment import Experiment
from edgefr.metrics.continual import MASKS, Masks, degradation
from edgefr.report.pages import Record, Spread, number
from edgefr.simulation.evaluation.lists import rank_lists
from edgefr.simulation.prepare import prepare
from edgefr.simulation.program import build_program
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.cells import Ask, FinishedRuns
from edgefr.studies.reproductions.f3crec.recipes import LABELS
from edgefr.studies.reproductions.published import Numbers, published
from edgefr.studies.reproductions.tables import Made
from export.program import read_by
from privacy.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

SHARE = 0.2
"""Share of users, or items, that count as static or as dynamic."""
METHODS = ("f3crec", "f3crec-no-adaptive", "spp")
SERVERS = ("f3crec", "f3crec-no-itemwise")
GROUPS = ("static", "dynamic")
METRIC = "NDCG@20"

_AT_ONCE = 256  # users whose ranks of all items are held at once

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def ends(values: npt.ArrayLike, share: float = SHARE) -> tuple[Ints, Ints]:
    """Return the places of the lowest and of the highest `share` of the values, NaN left out.

    At least one each if there are two. Of equal values the earlier counts as lower.

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

    def part(self, block: int, place: str) -> dict[str, Tensor]:
        """Return the "shared" or "private" tensors after a block, by name."""
        head = f"block{block}.{place}."
        return {name.removeprefix(head): value for name, value in self.tensors.items() if name.startswith(head)}

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

    def on_base(self, block: int, mask: Masks) -> Floats:
        """Return NDCG@20 of every user on D0's test items after a block: float64 [users], NaN without test items."""
        after, base = self.prepared.blocks[block], self.prepared.blocks[0]
        users = base.users("test")
        current = joined(after.train.take(users), after.valid.take(users))
        hidden = current if mask == MASKS[0] else joined(after.past.take(users), current)
        out = np.full(len(self.prepared.dataset.users), np.nan)
        out[users] = rank_lists(self.score(block), after.pool, users, base.test.take(users), hidden, [20])[METRIC]
        return out

    def rank_changes(self, block: int) -> tuple[float, float] | None:
        """Return the mean change of ranks from the block before to `block`, of static and of dynamic items.

        None: nobody to ask. Asked are the users who trained in the block before and not in this one; items are those
        that existed before, ranked among themselves. Users keep the private tensors of the block before: only the item
        table moves.
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

    def transitions(self) -> tuple[float, float, float]:
        """Return static, dynamic and their difference, as means over the transitions that some user can tell of."""
        changes = (self.rank_changes(t) for t in range(1, len(self.prepared.blocks)))
        known = [change for change in changes if change is not None]
        if not known:
            return math.nan, math.nan, math.nan
        static, dynamic = np.mean(known, axis=0)
        return float(static), float(dynamic), float(dynamic - static)


def reader(data_dir: Path | None) -> Callable[[Run], SavedModels]:
    """Return what reads runs with `evaluation.keep_blocks`; the last data are kept, since strategies share them."""
    last = dict[str, Prepared]()

    def read(run: Run) -> SavedModels:
        e = run.experiment
        key = repr((e.data, e.seed, e.fidelity, e.protocol))
        if key not in last:
            last.clear()
            last[key] = prepare(e, data_dir, "cpu")
        return SavedModels(e, last[key], run.read_tensors("blocks"))

    return read


# Tables 4 and 5


@dataclass(frozen=True)
class Loss:
    """This is one seed's group of users: NDCG@20 on D0's test items after D0 and after D1, and how many users."""

    before: float
    after: float
    users: int

    @property
    def degradation(self) -> float:
        """Return the share that is lost: (a00 - a10) / a00."""
        return degradation(self.before, self.after)


Losses = dict[tuple[str, str, str], list[Loss]]
"""By (method, mask, group): one per seed."""


def losses(ask: Ask, found: FinishedRuns, data: str, progress: Progress | None = None) -> Losses:
    """Measured on kept models, seed by seed, for seeds whose F3CRec run is finished: it says who is in which group."""
    runs = {name: found.runs.get(cell, {}) for name, cell in ask.cells(data, METHODS, "fedmf").items()}
    read, out = reader(ask.data_dir), Losses({(m, mask, g): [] for m in METHODS for mask in MASKS for g in GROUPS})
    for done, (seed, run) in enumerate(runs["f3crec"].items(), 1):
        shift = read(run).tensors["block1.shift"]  # Eq. 2, NaN: absent, or no memory
        groups = dict(zip(GROUPS, ends(shift.numpy()), strict=True))
        for name in METHODS:
            if seed in runs[name]:
                models = read(runs[name][seed])
                for mask in MASKS:
                    before, after = (models.on_base(t, mask) for t in (0, 1))
                    for group, users in groups.items():
                        out[name, mask, group].append(loss(before, after, users))
        if progress is not None:
            progress(f"kept models, {data}", done, len(runs["f3crec"]), "Tables 4 and 5")
    return out


def loss(before: Floats, after: Floats, users: Ints) -> Loss:
    """Take the means over those of the users who have test items.

    >>> loss(np.array([0.4, 0.2, math.nan]), np.array([0.1, 0.2, math.nan]), np.array([0, 1, 2])).degradation
    0.5
    """
    own = users[~np.isnan(before[users])]
    if not len(own):
        return Loss(math.nan, math.nan, 0)
    return Loss(float(before[own].mean()), float(after[own].mean()), len(own))


def users(table: str, ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Make Table 4, the degradation on D0's test items, or Table 5, NDCG@20 on them after D1."""
    what, printed = "degradation" if table == "table-4" else "after", published("f3crec", table)
    return sum((users_sheet(name, losses(ask, found, name, progress), what, printed) for name in data), Made())


def users_sheet(data: str, found: Losses, what: str, printed: Mapping[tuple[str, ...], Numbers]) -> Made:
    """Make a row per mask and group. The published numbers stand beside the mask of the released code."""
    rows, records = [], list[Record]()
    for mask in MASKS:
        for group in GROUPS:
            row = {"users": group, "mask": mask}
            for name in METHODS:
                spread = Spread.of([getattr(one, what) for one in found[name, mask, group]])
                was = printed.get((data, group), {}).get(name) if mask == MASKS[0] else None
                row |= {LABELS[name]: str(spread), f"{LABELS[name]}\npaper": number(was)}
                head = {"data": data, "method": name, "users": group, "mask": mask, "value": what}
                records.append({**head, **spread.record(), "published": was})
            members = [one.users for one in found[METHODS[0], mask, group]]
            row["users\nper seed"] = f"{np.mean(members):.0f}" if members else "-"
            rows.append(row | {"seeds": str(len(members))})
    return Made([Sheet(f"{data}, FedMF, NDCG@20 on D0's test items", rows, ["users", "mask"], rules=[1])], records)


def table_7(ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Show how far static and dynamic items' ranks move for users who are away."""
    made, read = Made(), reader(ask.data_dir)
    for name in data:
        rows, records = [], list[Record]()
        for method, cell in ask.cells(name, SERVERS, "fedmf").items():
            runs, changes = found.runs.get(cell, {}), []
            for done, run in enumerate(runs.values(), 1):
                changes.append(read(run).transitions())
                if progress is not None:
                    progress(f"ranks, {name}", done, len(runs), LABELS[method])
            was, row = published("f3crec", "table-7").get((name, method), {}), {"type": LABELS[method]}
            for at, what in enumerate(("static items", "dynamic items", "diff")):
                spread = Spread.of([one[at] for one in changes])
                row |= {what: str(spread), f"{what}\npaper": number(was.get(what))}
                head = {"data": name, "method": method, "value": what}
                records.append({**head, **spread.record(), "published": was.get(what)})
            rows.append(row | {"seeds": str(len(runs))})
        made += Made([Sheet(f"{name}, FedMF, rate of change of ranks", rows, ["type"])], records)
    return made
