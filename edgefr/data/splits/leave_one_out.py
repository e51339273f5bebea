"""A protocol says which interactions train, which are held out, and what a held-out item is ranked against.

Owns: leave-one-out, within a domain and across several. Does not own: other protocols, scores and metrics. A protocol
is part of a result: `describe` is printed with every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.ragged import Ragged
from edgefr.config import random_streams as purposes
from edgefr.data.filtering import without_users
from edgefr.data.interactions import Dataset
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.sorting import repeats
from edgefr.data.splits.candidates import Candidates, check_room, drawn
from edgefr.data.splits.split import Items, Split
from privacy import keyed
from privacy.errors import InputError, unknown

_ROWS_AT_ONCE = 1 << 18
_FEW = {"train": "only train", "drop": "are dropped whole, and items that they alone had"}

KNOWN = (
    "training knew which items are held out: its negatives avoid them, so a held-out item is never learned to be one"
)
"""What is printed beside numbers that rest on a leak."""


class LeaveOneOut(ProtocolSettings):
    """This is leave-one-out by time: the newest item is the test, the second newest the validation item.

    A data set's own split of single interactions goes first. Both are ranked against `negatives` sampled items or the
    whole pool.
    """

    name: Literal["leave-one-out"] = "leave-one-out"
    negatives: int = Field(99, ge=1, description="sampled items each held-out item is ranked against (items)")
    min_interactions: int = Field(
        3, ge=3, description="users with fewer distinct items are not evaluated: what becomes of them says few (items)"
    )
    few: Literal["train", "drop"] = Field(
        "train",
        description="users with fewer distinct items: they only train, or are dropped whole, as in FedCAR (which drops "
        "those under 6)",
    )
    negatives_avoid_held_out: bool = Field(
        False,
        description="whether negatives for training avoid the held-out items too, as in PFedRec's and GPFedRec's "
        "released code: then training knows which items are asked for, and its results say so",
    )

    def restrict(self, dataset: Dataset) -> Dataset:
        """Return the data that takes part: without users of too few different items, where these are dropped.

        Their exclusive items go too; listed items without interactions stay. Raises `InputError` when nobody is left.
        """
        if self.few == "train":
            return dataset
        rows = first_times(dataset)
        enough = np.bincount(dataset.user[rows], minlength=len(dataset.users)) >= self.min_interactions
        if not enough.any():
            raise _nobody(dataset, self.min_interactions)
        return without_users(dataset, enough)

    def apply(self, dataset: Dataset, seed: int) -> tuple[Split, ...]:
        """Return the split "main". Raises `InputError` for no users or too many negatives."""
        held = _hold_out(dataset, first_times(dataset), self.min_interactions)
        pool, nothing = np.arange(len(dataset.catalogue), dtype=np.int32), Ragged.empty(len(dataset.users))
        split = _split("main", dataset, held, pool, nothing, self.negatives, seed)
        return (replace(split, avoid=_held_out(split)) if self.negatives_avoid_held_out else split,)

    def describe(self, dataset: Dataset) -> str:
        """Write one line that says how the numbers beside it were made."""
        few = f"users under {self.min_interactions} items {_FEW[self.few]}"
        leak = f"; {KNOWN}" if self.negatives_avoid_held_out else ""
        return f"leave-one-out by {_clock(dataset)}; {_rules(dataset, self.negatives, few)}{leak}"


class CrossDomain(ProtocolSettings):
    """This is TransFR's cross-domain task (§4.1): learn in `source`, recommend in `target` to users who are in both.

    The split "source" is leave-one-out over all source users, "target" over the overlapping users: its `train` serves
    local training only, its `history` is the user's source items (train and validation). Cold start trains on nothing
    of the target. Of several targets each is a split, "target" and its name.
    """

    name: Literal["cross-domain"] = "cross-domain"
    source: str = Field(description="the domain that is learned from")
    target: str | Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="the domain that is recommended in, or several of them, each by itself"
    )
    negatives: int = Field(99, ge=1, description="sampled items each held-out item is ranked against (items)")
    min_interactions: int = Field(
        3, ge=3, description="users with fewer distinct items in a domain are not evaluated there (items)"
    )

    @property
    def targets(self) -> Mapping[str, str]:
        """Return the domain that each split recommends in, by the split's name.

        >>> CrossDomain(source="books", target="films").targets
        {'target': 'films'}
        >>> list(CrossDomain(source="books", target=("films", "music")).targets)
        ['target films', 'target music']
        """
        names = (self.target,) if isinstance(self.target, str) else self.target
        return {"target" if len(names) == 1 else f"target {name}": name for name in names}

    def apply(self, dataset: Dataset, seed: int) -> tuple[Split, ...]:
        """Return the split "source" and each target's. Raises `InputError` also for unknown or repeated domains."""
        named = (self.source, *((self.target,) if isinstance(self.target, str) else self.target))
        for name in named:
            if name not in dataset.domains:
                raise unknown(f"domain of data set '{dataset.name}'", name, dataset.domains)
        twice = [name for name in dataset.domains if named.count(name) > 1]
        if twice:
            raise InputError(f"protocol.source and protocol.target name '{twice[0]}' twice; name a domain once")
        rows, users, domain = first_times(dataset), len(dataset.users), dataset.catalogue.domain
        pools = {n: np.flatnonzero(domain == dataset.domains.index(n)).astype(np.int32) for n in named}
        parts = {n: rows[domain[dataset.item[rows]] == dataset.domains.index(n)] for n in named}
        source = parts[self.source]
        held = _hold_out(dataset, source, self.min_interactions)
        known = source[~held.test]
        history = Ragged.from_sorted(dataset.user[known], dataset.item[known], users)
        draw = (self.negatives, seed)
        splits = [_split("source", dataset, held, pools[self.source], Ragged.empty(users), *draw)]
        for split, name in self.targets.items():
            both = parts[name][np.isin(dataset.user[parts[name]], dataset.user[source])]  # overlapping users only
            held = _hold_out(dataset, both, self.min_interactions)
            splits.append(_split(split, dataset, held, pools[name], history, *draw))
        return tuple(splits)

    def describe(self, dataset: Dataset) -> str:
        """Write one line that says how the numbers beside it were made."""
        rules = _rules(dataset, self.negatives, f"users under {self.min_interactions} items {_FEW['train']}")
        target = " and ".join(self.targets.values())
        return (
            f"cross-domain {self.source} -> {target}, leave-one-out by {_clock(dataset)} within each "
            f"domain; all {self.source} users train, overlapping users are tested in {target} with "
            f"their {self.source} train and validation items as history; {rules}; of a method that knows no item of "
            f"{target} all are tied, and metrics are expectations"
        )


def _has_split(dataset: Dataset) -> bool:
    """Say whether single interactions, not sessions, were released with their parts."""
    return dataset.part is not None and dataset.session is None


def _clock(dataset: Dataset) -> str:
    if dataset.clock:
        newest = "last" if _last_is_newest(dataset) else "first"
        return f"clock time (of equal times the {newest} in the file counts as newest)"
    return "position (no clock times; equal positions in file order)"


def _last_is_newest(dataset: Dataset) -> bool:
    """Say whether of rows of equal times the last in the file counts as newest: without a clock, or as a file says."""
    return not dataset.clock or dataset.source.get("ties") == "last"


def _rules(dataset: Dataset, negatives: int, few: str) -> str:
    held = "newest item = test, second newest = validation"
    if _has_split(dataset):
        held = "test and validation items as the data's own split (no validation item: the newest training item)"
    low = dataset.source.get("low_rated")
    never = "the user never had"
    if low is not None:
        never += f" or rated below {low:g} (no interaction here)"
    return (
        f"{held}, a repeated item counts at its first time; "
        f"{few}; sampled ranking: {negatives} fixed uniform "
        f"negatives, listed items {never}; full ranking: every listed item but the user's own "
        "earlier ones; ties count against the target"
    )


class _Held(NamedTuple):
    """These are rows of a data set in time order per user, int64 [n], and which of them are held out, bool [n]."""

    rows: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


def first_times(dataset: Dataset) -> npt.NDArray[np.int64]:
    """Return the rows where a user has an item for the first time, by user and time, int64 [n]."""
    ends, parts, items = dataset.offsets, [np.empty(0, np.int64)], len(dataset.catalogue)
    first = 0
    while first < len(ends) - 1:  # as many whole users at a time as fit the cache, at least one
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _ROWS_AT_ONCE, side="right")) - 1)
        part = slice(int(ends[first]), int(ends[last]))
        user, item, time = dataset.user[part], dataset.item[part], dataset.moment[part]
        rows = np.arange(len(user)) if _last_is_newest(dataset) else _by_time(user, time)
        pairs = (user[rows] - np.int64(first)) * items + item[rows]
        keep = np.ones(len(rows), bool)
        keep[repeats(pairs, (last - first) * items)] = False
        parts.append(rows[keep] + ends[first])
        first = last
    return np.concatenate(parts)


def _by_time(user: npt.NDArray[np.int32], time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows sorted by user and time, equal times reversed: first in the file = newest."""
    rows = np.arange(len(user))
    new = np.flatnonzero(np.append(True, (user[1:] != user[:-1]) | (time[1:] != time[:-1])))
    ends = np.append(new[1:], len(rows))
    return np.repeat(new + ends - 1, ends - new) - rows


def _hold_out(dataset: Dataset, rows: npt.NDArray[np.int64], min_interactions: int) -> _Held:
    """Hold out the newest row of a user = test, the one before = validation; users with too few rows have neither."""
    counts = np.bincount(dataset.user[rows], minlength=len(dataset.users))
    last = np.cumsum(counts)[counts >= min_interactions] - 1
    if _has_split(dataset) and len(last):
        return _as_split(dataset, rows, counts >= min_interactions)
    if not len(last):
        raise _nobody(dataset, min_interactions)
    valid, test = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    test[last], valid[last - 1] = True, True
    return _Held(rows, valid, test)


def _nobody(dataset: Dataset, min_interactions: int) -> InputError:
    return InputError(
        f"no user of '{dataset.name}' has the {min_interactions} different items that the protocol "
        "needs; lower protocol.min_interactions or use more data"
    )


def _as_split(dataset: Dataset, rows: npt.NDArray[np.int64], enough: npt.NDArray[np.bool_]) -> _Held:
    """Hold out by the data's own split, for users with `enough` [users]; without a test item they only train."""
    assert dataset.part is not None
    user, part = dataset.user[rows], dataset.part[rows]
    for number, name in ((2, "test"), (1, "validation")):
        counts = np.bincount(user[part == number], minlength=1)
        if counts.max() > 1:
            raise InputError(
                f"user '{dataset.users[int(counts.argmax())]}' has {counts.max()} rows of {name} in the split of "
                f"'{dataset.name}', and leave-one-out asks for one; keep one, or set data_options.columns.split=-"
            )
    tested = np.zeros(len(dataset.users), bool)
    tested[user[part == 2]] = True
    tested &= enough
    if not tested.any():
        raise InputError(
            f"no user of '{dataset.name}' has enough items and a test item in its split that is new to the user; "
            "leave the split alone by data_options.columns.split=-"
        )
    test, valid = (part == 2) & tested[user], (part == 1) & tested[user]
    newest = np.full(len(dataset.users), -1)
    newest[user[~test]] = np.flatnonzero(~test)  # of several rows of a user the last is kept
    newest[user[valid]] = -1
    valid[newest[tested & (newest >= 0)]] = True
    return _Held(rows, valid, test)


def _held_out(split: Split) -> Ragged:
    both = np.stack([split.valid, split.test], axis=1)
    user, which = np.nonzero(both >= 0)
    return Ragged.from_sorted(user, both[user, which], len(both))


def _split(name: str, dataset: Dataset, held: _Held, pool: Items, history: Ragged, negatives: int, seed: int) -> Split:
    user, item, users = dataset.user[held.rows], dataset.item[held.rows], len(dataset.users)
    valid, test = np.full(users, -1, np.int32), np.full(users, -1, np.int32)
    valid[user[held.valid]] = item[held.valid]
    test[user[held.test]] = item[held.test]
    train = ~(held.valid | held.test)
    kept = Ragged.from_sorted(user[train], item[train], users)
    evaluated = np.flatnonzero(test >= 0)
    check_room(dataset, evaluated, kept.counts[evaluated] + 2, len(pool), negatives)

    def candidates(which: str, target: Items) -> Items | Candidates:
        key = keyed.key(seed, purposes.candidates(name, which))
        return drawn(Candidates(key, evaluated, target, kept, (valid, test), pool, negatives))

    return Split(name, kept, history, valid, test, pool, candidates("valid", valid), candidates("test", test))
