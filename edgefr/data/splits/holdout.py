"""A hold-out keeps back several items of a user: by ratio, from a moment on, of cold items, or as the data's own split.

Owns: which interactions train, validate and test, and which items are ranked. Does not own: leave-one-out, metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.ragged import Ragged, joined
from edgefr.config import random_streams as purposes
from edgefr.config.sheet import count
from edgefr.data.interactions import Dataset
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.splits.candidates import Candidates, drawn
from edgefr.data.splits.leave_one_out import first_times
from edgefr.data.splits.split import Items, Split
from privacy import keyed
from privacy.errors import InputError
from privacy.setting_scope import ReadWithout, Settings

Parts = npt.NDArray[np.int8]
"""0 = train, 1 = validation, 2 = test."""
Rows = npt.NDArray[np.int64]

_LEAST = 3  # items of a user, of which one each can train, validate and test
_NEGATIVES = 99  # beside a validation item, for references that choose weights among candidates


class _Cut(NamedTuple):
    """This says how rows are cut: their parts, in words, and the items that there are in training (None: all)."""

    part: Parts
    words: str
    there: Items | None = None


class Holdout(ProtocolSettings, Settings):
    """This holds several items of a user out; all of them are ranked together, among all that may be recommended.

    An item counts at the first time that a user has it. A user with nothing to train on is not asked about.
    """

    name: Literal["holdout"] = "holdout"
    by: Literal["ratio", "time", "cold-items", "column"] = Field(
        "ratio",
        description="what is held out: a share of every user's items, newest first (ratio); all that came after one "
        "moment, the same for everybody (time); all interactions of some items (cold-items); what the data set's own "
        "column says (column)",
    )
    valid: Annotated[float, ReadWithout("by", "column")] = Field(
        0.1, gt=0, le=0.4, description="share that validates: of each user's items, of all interactions, of the items"
    )
    test: Annotated[float, ReadWithout("by", "column")] = Field(
        0.1, gt=0, le=0.4, description="share that tests: of each user's items, of all interactions, of the items"
    )

    @property
    def draws_apart(self) -> bool:
        return self.by in ("time", "cold-items")

    def apply(self, dataset: Dataset, seed: int) -> tuple[Split, str]:
        """Return the split "main", and one line that says how the numbers beside it were made.

        Raises `InputError` for data that cannot be cut so, and where nobody would validate or be tested.
        """
        rows, users = first_times(dataset), len(dataset.users)
        user, item = dataset.user[rows], dataset.item[rows]
        cuts: dict[str, Callable[[Dataset, Rows, int], _Cut]] = {
            "ratio": self._by_ratio,
            "time": self._by_time,
            "cold-items": self._of_cold_items,
            "column": _by_column,
        }
        part, words, there = cuts[self.by](dataset, rows, seed)
        known = np.bincount(user[part == 0], minlength=users) > 0
        train, valid, test = (
            Ragged.from_sorted(user[own], item[own], users)
            for own in (part == 0, (part == 1) & known[user], (part == 2) & known[user])
        )
        for what, held in (("validate on", valid), ("test", test)):
            if not len(held.values):
                raise InputError(
                    f"protocol.by={self.by} leaves nothing to {what} of '{dataset.name}' by users who have something "
                    "to train on; use more data, a larger share or another protocol.by"
                )
        pool = np.arange(len(dataset.catalogue), dtype=np.int32)
        if self.by == "cold-items" and there is not None:
            pool = np.setdiff1d(pool, there)
        own = joined(joined(train, valid), test)
        split = Split(
            "main",
            train,
            Ragged.empty(users),
            _first(valid),
            _first(test),
            pool,
            _candidates(purposes.candidates("main", "valid"), seed, valid, own, pool),
            _candidates(purposes.candidates("main", "test"), seed, test, own, pool),
            several=(valid, test),
            there=there,
        )
        return split, _described(self.by, words, dataset, split)

    def _by_ratio(self, dataset: Dataset, rows: Rows, seed: int) -> _Cut:
        user = dataset.user[rows]
        order = np.arange(len(rows))
        if not dataset.clock:
            own = keyed.fold(keyed.key(seed, purposes.HELD_OUT), user)
            order = np.lexsort((keyed.bits(own, dataset.item[rows]), user))
        size = np.bincount(user, minlength=len(dataset.users))[user]
        newest = np.empty(len(rows), np.int64)
        newest[order] = (np.cumsum(np.bincount(user, minlength=len(dataset.users)))[user] - 1) - np.arange(len(rows))
        test, valid = _share(self.test, size), _share(self.valid, size)
        part = ((newest < test + valid).astype(np.int8) + (newest < test)) * (size >= _LEAST)
        how = "the newest of each user's items in time" if dataset.clock else "of each user's items, drawn (no clock)"
        words = f"{how}, {self.test:.0%} test and {self.valid:.0%} before them validate, at least one each"
        return _Cut(part, f"{words}; users under {_LEAST} items only train")

    def _by_time(self, dataset: Dataset, rows: Rows, seed: int) -> _Cut:
        if not dataset.clock:
            raise InputError(
                f"protocol.by=time cuts at one moment and '{dataset.name}' has no clock times; use protocol.by=ratio"
            )
        moment, n = dataset.moment[rows], len(rows)
        ordered, newest = np.sort(moment), int(_share(self.test, n))
        ends = ordered[n - newest], ordered[max(0, n - newest - int(_share(self.valid, n)))]
        part = (moment >= ends[0]).astype(np.int8) + (moment >= ends[1])
        start = [str(np.datetime64(int(dataset.time[rows][part >= number].min()), "s")) for number in (1, 2)]
        words = (
            f"one moment for everybody: what came before {start[0]} trains, what came before {start[1]} validates, "
            "the rest tests (equal times together); negatives for training are drawn from items that anybody had had "
            "before the first"
        )
        return _Cut(part, words, np.unique(dataset.item[rows][part == 0]))

    def _of_cold_items(self, dataset: Dataset, rows: Rows, seed: int) -> _Cut:
        had = np.unique(dataset.item)
        order = had[np.argsort(keyed.bits(keyed.key(seed, purposes.COLD_ITEMS), had), kind="stable")]
        test, valid = (int(_share(share, len(had))) for share in (self.test, self.valid))
        of = np.zeros(len(dataset.catalogue), np.int8)
        of[order[:test]], of[order[test : test + valid]] = 2, 1
        words = (
            f"{test:,} of the {len(had):,} items that anybody had test and {valid:,} validate, drawn by "
            "the seed; nobody trains on them, and no negatives are drawn from them; their texts are read as others are"
        )
        return _Cut(of[dataset.item[rows]], words, np.flatnonzero(of == 0).astype(np.int32))


def _described(by: str, words: str, dataset: Dataset, split: Split) -> str:
    """Return the line beside results: how the data were cut, who is tested, and on what."""
    users, held = len(np.unique(dataset.user)), split.lists("test")
    new, trains = ~np.isin(held.values, split.train.values), int((split.train.counts > 0).sum())
    among = "the held-out items alone" if split.cold else "every listed item but the user's own earlier ones"
    return (
        f"hold-out by {by}: {len(split.users('test')):,} of {users:,} users are tested on {len(held.values):,} items, "
        f"{new.mean():.1%} of which nobody trains on; {words}; {count(users - trains, 'user')} with nothing to train "
        f"on are not asked about; a repeated item counts at its first time; full ranking: {among}; ties count against "
        "the target"
    )


def _share(share: float, of: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return a share of whole numbers, rounded down, and at least 1."""
    exact = Fraction(str(share))
    return np.maximum(np.asarray(of, np.int64) * exact.numerator // exact.denominator, 1)


def _by_column(dataset: Dataset, rows: Rows, seed: int) -> _Cut:
    """Cut as the data's own split says; where it names nothing to validate on, the newest training item does."""
    if dataset.part is None or dataset.session is not None or dataset.block is not None:
        what = "has no split of single interactions" if dataset.part is None else "has a split of sessions or blocks"
        raise InputError(
            f"protocol.by=column takes the split that data come with, and '{dataset.name}' {what}: name a column that "
            "says train, valid or test by data_options.columns.split, or use protocol.by=ratio"
        )
    user, part = dataset.user[rows], dataset.part[rows].astype(np.int8)
    words = "in the parts that the data's own column says"
    if not (part == 1).any():
        train = np.flatnonzero(part == 0)
        newest = np.full(len(dataset.users), -1)
        newest[user[train]] = train  # of several rows of a user the last is kept
        tested = np.bincount(user[part == 2], minlength=len(dataset.users)) > 0
        some = tested & (np.bincount(user[train], minlength=len(dataset.users)) > 1)
        part[newest[some]] = 1
        words += ", which names nothing to validate on: the newest training item of each tested user does"
    return _Cut(part, words)


def _first(held: Ragged) -> Items:
    """Return the first held-out item of every user, int32 [users], -1 where there is none."""
    out, users = np.full(len(held), -1, np.int32), np.flatnonzero(held.counts)
    out[users] = held.values[held.offsets[users]]
    return out


def _candidates(purpose: str, seed: int, held: Ragged, own: Ragged, pool: Items) -> Items | Candidates:
    """Return the first held-out item of each user and negatives: fewer where somebody leaves no more items."""
    users, first, there = np.flatnonzero(held.counts), _first(held), np.isin(own.values, pool)
    own = Ragged.from_sorted(own.rows[there], own.values[there], len(own))
    left = min(_NEGATIVES, int((len(pool) - own.counts[users]).min()))
    if left < 1:
        return first[users][:, None]
    return drawn(Candidates(keyed.key(seed, purpose), users, first, own, (), pool, left))
