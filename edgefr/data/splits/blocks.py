"""Blocks of time are for continual learning: a base block, then equal increments, each split per user (F3CRec §5.1).

Owns: which interactions take part, their block, and the split there. Does not own: state between blocks, ranking and
masking.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from math import floor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.ragged import Ragged
from edgefr.config import random_streams as purposes
from edgefr.data.interactions import Dataset, k_core, places
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.sorting import first_of
from privacy import keyed
from privacy.errors import InputError
from privacy.setting_scope import default_of

IncrementSplit = Literal["random", "chronological"]
Part = Literal["train", "valid", "test"]

_LEAST = 3  # interactions in a block below which a user only trains


@dataclass(frozen=True, kw_only=True, repr=False)
class Stream(Dataset):
    """This is a data set with one order over all users: `position` int64 [n] is every row's place, 0 the oldest.

    Rows stay sorted by user. Equal times keep the order of the original data set, for a file sorted by user the file's.
    """

    position: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """This is one block D^t (F3CRec §3.1). Row u of each table is user u of the data set; absent users have empty rows.

    `train`, `valid`, `test`: int32 items in time order, disjoint within a user. `past`: distinct items of earlier
    blocks. `pool`: int32, items that have appeared so far, ascending. `known`: bool [users], users of earlier blocks.
    `interactions` counts the block's records, repeated pairs included.
    """

    number: int
    train: Ragged
    valid: Ragged
    test: Ragged
    past: Ragged
    pool: npt.NDArray[np.int32]
    known: npt.NDArray[np.bool_]
    interactions: int

    @property
    def name(self) -> str:
        """ "D0" is the base block, "D1" the first increment."""
        return f"D{self.number}"

    @property
    def history(self) -> Ragged:
        return self.past

    @property
    def avoid(self) -> None:
        """Return nothing: negatives of a block avoid what their users train on, and no more."""

    @property
    def drawn(self) -> npt.NDArray[np.int32]:
        """Return the items that negatives for training are drawn from, ascending."""
        return self.pool

    def users(self, which: Part) -> npt.NDArray[np.int64]:
        """Return the users with at least one item in that part, ascending, int64 [n]."""
        return np.flatnonzero(self._part(which).counts)

    def held(self, which: Part) -> npt.NDArray[np.int32]:
        """Return the first item that each of these users has in that part, int32 [n]."""
        part = self._part(which)
        return part.values[part.offsets[self.users(which)]]

    def statistics(self) -> dict[str, Any]:
        """Return counts for a report, named as in F3CRec's Table 1 where they share a name.

        `users` and `items` are active in this block, `accumulated_*` up to and including it. `sparsity` is Table 1's,
        of accumulated counts; `sparsity_active` is of the block's own. `train`, `valid` and `test` count items,
        `*_users` their users.
        """
        parts: tuple[Part, ...] = ("train", "valid", "test")
        counts: dict[str, int] = {which: len(self._part(which).values) for which in parts}
        holders = {f"{which}_users": len(self.users(which)) for which in parts}
        active = self.train.counts > 0  # whoever has anything has something to train on
        items = len(np.unique(np.concatenate([self._part(which).values for which in parts])))
        accumulated = int((self.known | active).sum())
        return {
            "users": int(active.sum()),
            "items": items,
            "accumulated_users": accumulated,
            "accumulated_items": len(self.pool),
            "interactions": self.interactions,
            "sparsity": 1 - self.interactions / (accumulated * len(self.pool)),
            "sparsity_active": 1 - self.interactions / (int(active.sum()) * items),
            **counts,
            **holders,
        }

    def _part(self, which: Part) -> Ragged:
        part: Ragged = getattr(self, which)
        return part


class Blocks(ProtocolSettings):
    """Blocks are made by time: a base block D0 and equal increments, each split 80/10/10 per user (F3CRec §5.1).

    An interaction is a distinct (user, item, time) record, as F3CRec counts: tags of an artist at one time are one
    record. Within a user's block an item counts once, at its first time, so no item is both trained and tested there.
    """

    name: Literal["blocks"] = "blocks"
    min_interactions: int = Field(
        10, ge=1, description="users and items with fewer interactions are left out until none is left (interactions)"
    )
    base: float = Field(0.6, gt=0, lt=1, description="share of the interactions, oldest first, in the base block")
    increments: int = Field(
        3, ge=1, le=1000, description="equal blocks that the other interactions are cut into (blocks)"
    )
    increment_split: IncrementSplit | None = Field(
        None,
        description="how a user's items of an increment become train, validation and test; by default as the "
        "experiment's fidelity has it: random in the paper, chronological in the released code",
    )

    @property
    def learned(self) -> int:
        """Return the number of blocks, the base block among them."""
        return 1 + self.increments

    def restrict(self, dataset: Dataset) -> Stream:
        """Return the interactions that take part, with users and items renumbered by their first block.

        Newcomers of later blocks have the highest numbers; order within a block is the data set's. A data set with its
        own blocks keeps all rows and numbers. Raises `InputError` without clock times and when too little is left.
        """
        if dataset.block is not None:
            check_given(self, dataset)
            position = _ranks(dataset.time)
            return Stream(**{f.name: getattr(dataset, f.name) for f in fields(Dataset)}, position=position)
        if not dataset.clock:
            raise InputError(
                f"protocol blocks cuts by time and data set '{dataset.name}' has no clock times; choose one that has"
            )
        least = self.min_interactions
        rows = np.flatnonzero(first_of(_moments(dataset) * len(dataset.catalogue) + dataset.item))
        rows = rows[k_core(dataset.user[rows], dataset.item[rows], least, least)]
        if not len(rows):
            raise InputError(
                f"protocol.min_interactions is {least} and leaves no user and no item of '{dataset.name}'; lower it"
            )
        position = _ranks((dataset.position if isinstance(dataset, Stream) else dataset.moment)[rows])
        return _renumbered(dataset, rows, position, self._cut(dataset.name, position))

    def apply(self, dataset: Dataset, seed: int, increment_split: IncrementSplit = "random") -> tuple[Block, ...]:
        """Return the blocks D0, D1, ... of a data set that `restrict` returned.

        `increment_split` is the fidelity's; the protocol's own field is stronger. A user's split depends on the seed,
        user, block and its items there alone. Raises `InputError` for too few interactions.
        """
        user, item, users, items = dataset.user, dataset.item, len(dataset.users), len(dataset.catalogue)
        blocks = self.learned
        number = self._numbers(dataset)
        group = user.astype(np.int64) * blocks + number  # ascends where blocks are cut: a user's rows are in time order
        once = first_of(group * items + item)
        ever = first_of(user.astype(np.int64) * items + item)
        chronological = {"random": False, "chronological": True}[self.increment_split or increment_split]
        part = np.full(len(user), -1, np.int8)
        if dataset.block is None or dataset.part is None:
            part[once] = _parts(group[once], blocks, seed, chronological)
        else:
            part = dataset.part.astype(np.int8)
        user_born, item_born = _born(user, number, users, blocks), _born(item, number, items, blocks)

        def table(rows: npt.NDArray[np.bool_]) -> Ragged:
            return Ragged.from_sorted(user[rows], item[rows], users)

        def block(t: int) -> Block:
            now = number == t
            train, valid, test = (table(now & (part == which)) for which in range(3))
            past, pool = table(ever & (number < t)), np.flatnonzero(item_born <= t).astype(np.int32)
            return Block(t, train, valid, test, past, pool, user_born < t, int(now.sum()))

        return tuple(block(t) for t in range(blocks))

    def describe(self, dataset: Dataset, increment_split: IncrementSplit = "random") -> str:
        """Write one line that says how the numbers beside it were made; `increment_split` as in `apply`."""
        if dataset.block is not None:
            return (
                f"the {self.learned} blocks that '{dataset.name}' comes with, a user's items of each in the parts that "
                "it says (columns block and split); ties count against the target"
            )
        how = {"random": "at random as well", "chronological": "by time: newest = test, then validation"}[
            self.increment_split or increment_split
        ]
        return (
            f"blocks by clock time of {self.min_interactions}-core '{dataset.name}' (equal times in the data set's "
            f"order): base block D0 the oldest {100 * self.base:g} % of the interactions, then {self.increments} equal "
            "increments; per user and block 80/10/10 train/validation/test, D0 at random, increments "
            f"{how}; users under {_LEAST} items in a block only train there; repeats count where the data set is cut "
            "into blocks, within a user's block an item counts once, at its first time; ties count against the target"
        )

    def _numbers(self, dataset: Dataset) -> npt.NDArray[np.int16]:
        """Return the block of every row; D0 is the first share of interactions, the last takes the rest."""
        if dataset.block is not None:
            return dataset.block
        return self._cut(dataset.name, dataset.position if isinstance(dataset, Stream) else _ranks(dataset.moment))

    def _cut(self, name: str, position: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
        """Return the block of every row of a place by time. Raises `InputError` where a block would be empty."""
        share, n = Fraction(str(self.base)), len(position)
        sizes = [floor(share * n)] + [floor((1 - share) * n / self.increments)] * (self.increments - 1)
        if not all(sizes) or sum(sizes) == n:
            raise InputError(
                f"{n} interactions of '{name}' are too few for {self.learned} blocks; lower "
                "protocol.min_interactions or protocol.increments, or use more data"
            )
        return np.searchsorted(np.cumsum(sizes), position, side="right").astype(np.int16)


def _moments(dataset: Dataset) -> npt.NDArray[np.int64]:
    """Return a number for every (user, time) of the rows, int64 [n]: rows are sorted by both."""
    changed = (np.diff(dataset.user, prepend=-1) != 0) | (np.diff(dataset.moment, prepend=0) != 0)
    return np.cumsum(changed, dtype=np.int64)


def _ranks(time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return every row's place by time, equal times in the order of the rows."""
    return places(np.argsort(time, kind="stable"))


def _born(ids: npt.NDArray[np.int32], when: np.ndarray, n: int, never: int) -> npt.NDArray[np.int64]:
    """Return the smallest `when` of each of n ids, `never` for those without a row."""
    born = np.full(n, never, np.int64)
    np.minimum.at(born, ids.astype(np.intp), when.astype(np.int64))  # without casts inside, which are slow
    return born


def _renumbered(
    dataset: Dataset, rows: npt.NDArray[np.int64], position: npt.NDArray[np.int64], number: npt.NDArray[np.int16]
) -> Stream:
    """Return rows with their places and blocks as a stream, users and items numbered by first block."""
    n, never = len(rows), int(number.max()) + 1
    users = _by_birth(_born(dataset.user[rows], number, len(dataset.users), never), never)
    items = _by_birth(_born(dataset.item[rows], number, len(dataset.catalogue), never), never)
    grouped = Ragged.from_sorted(dataset.user[rows], np.arange(n), len(dataset.users)).take(users)
    order = grouped.values  # by new user; a user's rows stay in time order
    numbers = np.zeros(len(dataset.catalogue), np.int32)
    numbers[items] = np.arange(len(items))
    return Stream(
        name=dataset.name,
        users=dataset.users[users],
        catalogue=dataset.catalogue.take(items),
        user=grouped.rows.astype(np.int32),
        item=numbers[dataset.item[rows[order]]],
        time=dataset.time[rows[order]],
        domains=dataset.domains,
        clock=dataset.clock,
        offsets=grouped.offsets,
        source=dataset.source,
        position=position[order],
        exact=dataset.beside(rows[order])["exact"],
    )


def _by_birth(born: npt.NDArray[np.int64], never: int) -> npt.NDArray[np.int64]:
    """Return the ids that have a row, oldest first."""
    return np.argsort(born, kind="stable")[: int((born < never).sum())]


def _parts(group: npt.NDArray[np.int64], blocks: int, seed: int, chronological: bool) -> npt.NDArray[np.int8]:
    """Return 0 = train, 1 = validation, 2 = test for every row; `group` = user * blocks + block ascends."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    size = np.diff(starts, append=len(group))
    user, number = np.divmod(group[starts], blocks)
    bases = np.array([keyed.key(seed, purposes.BLOCKS, t) for t in range(blocks)], np.uint64)
    own = keyed.bits(bases[number], user)  # a key per user and block
    index = np.arange(len(group)) - np.repeat(starts, size)
    place = _shuffled(group, np.repeat(own, size), index)
    if chronological:  # the base block is split at random all the same
        newest = np.repeat(size, size) - 1 - index
        place = np.where(np.repeat(number > 0, size), newest, place)
    # 10 % up, then a ninth of the rest up: 80/10/10 with the small parts rounded up, as F3CRec's counts are
    enough = size >= _LEAST
    test = np.where(enough, -(-size // 10), 0)
    valid = np.where(enough, -(-(size - test) // 9), 0)
    return (place < np.repeat(test, size)).astype(np.int8) + (place < np.repeat(test + valid, size))


def _shuffled(group: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64], index: np.ndarray) -> npt.NDArray[np.int64]:
    """Return a random place 0..size-1 for every row within its ascending group."""
    draws = keyed.bits(keys, index) >> np.uint64(32)
    order = np.argsort((group.astype(np.uint64) << np.uint64(32)) | draws, kind="stable")
    place = np.empty(len(group), np.int64)
    place[order] = index  # groups keep their stretch of rows, so the i-th of the shuffled group gets place i
    return place


NOT_READ = ("min_interactions", "base", "increment_split")
"""Settings of the protocol that say how a data set is cut."""


def check_given(settings: Blocks, dataset: Dataset) -> None:
    """Raise `InputError` where a data set's own blocks and parts cannot be run, or are not asked for."""
    block, part, name = dataset.block, dataset.part, dataset.name
    assert block is not None
    if part is None:
        raise InputError(
            f"'{name}' says which block a row is of and not which part (train, valid or test): add a column split, or "
            "set data_options.columns.block=- to cut it by time"
        )
    for setting in NOT_READ:
        if getattr(settings, setting) != default_of(type(settings).model_fields[setting]):
            raise InputError(
                f"protocol.{setting} says how data are cut into blocks, and '{name}' comes with its blocks: drop it, "
                "or set data_options.columns.block=-"
            )
    there = np.unique(block)
    if there.tolist() != list(range(len(there))):
        raise InputError(f"'{name}': blocks are numbered 0, 1, 2, ... without a gap, not {there[:20].tolist()}")
    if len(there) != settings.learned:
        raise InputError(f"'{name}' comes with {len(there)} blocks; set protocol.increments={len(there) - 1}")
    group = (dataset.user.astype(np.int64) * len(there) + block) * len(dataset.catalogue) + dataset.item
    _, first, times = np.unique(group, return_index=True, return_counts=True)
    if (times > 1).any():
        at = first[int((times > 1).argmax())]
        who, what = dataset.users[dataset.user[at]], dataset.catalogue.ids[dataset.item[at]]
        raise InputError(f"'{name}': user '{who}' has item '{what}' twice in block {block[at]}; leave one of them out")
    lost = np.setdiff1d(group // len(dataset.catalogue), (group // len(dataset.catalogue))[part == 0])
    if len(lost):
        who, number = divmod(int(lost[0]), len(there))
        raise InputError(
            f"'{name}': user '{dataset.users[who]}' has nothing to train on in block {number}; give it some, or leave "
            "its rows there out"
        )
