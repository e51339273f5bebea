"""Protocols: which interactions train, which are held out, and what a held-out item is ranked against.

Owns: splits and sampled candidates. Does not own: scores and metrics. A protocol is part of a result: `describe` is
printed with every number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.candidates import sample_negatives
from edgefr.data.interactions import Dataset, Ragged
from privacy import keyed
from privacy.errors import InputError, unknown

Items = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Split:
    """What every user trains on and what is held out. Row u of each table is user u of the data set.

    `train` and `history`: items in time order; `history` is what the user has in the other domain and may serve as
    context (empty rows in the splits "main" and "source"). `valid`, `test`: int32 [users], the held-out item or -1.
    `pool`: the items that may be drawn and ranked, ascending. `valid_candidates`, `test_candidates`: int32
    [n, 1 + negatives], the held-out item in column 0, one row per user of `users("valid")` or `users("test")`.
    """

    name: Literal["main", "source", "target"]
    train: Ragged
    history: Ragged
    valid: Items
    test: Items
    pool: Items
    valid_candidates: Items
    test_candidates: Items

    def users(self, which: Literal["valid", "test"]) -> npt.NDArray[np.int64]:
        """The users with a held-out item, ascending, int64 [n]."""
        return np.flatnonzero((self.valid if which == "valid" else self.test) >= 0)


class LeaveOneOut(BaseModel):
    """Leave-one-out by time: the newest item is the test, the second newest the validation item.

    Both are ranked against `negatives` sampled items or against the whole pool; ask `edgefr.metrics.evaluate`.

    >>> LeaveOneOut().negatives
    99
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Literal["leave-one-out"] = "leave-one-out"
    negatives: int = Field(99, ge=1, description="sampled items each held-out item is ranked against (items)")
    min_interactions: int = Field(
        3, ge=3, description="users with fewer distinct items only train and are not evaluated (items)"
    )

    def apply(self, dataset: Dataset, seed: int) -> tuple[Split, ...]:
        """One split, "main". Raises `InputError` when nobody can be evaluated or too many negatives are asked."""
        rows = _first_times(dataset)
        held = _hold_out(dataset, rows, self.min_interactions)
        return (_split("main", dataset, rows, held, Ragged.empty(len(dataset.users)), self.negatives, seed),)

    def describe(self, dataset: Dataset) -> str:
        """One line that says how the numbers beside it were made."""
        return f"leave-one-out by {_clock(dataset)}; {_rules(self.negatives, self.min_interactions)}"


class CrossDomain(BaseModel):
    """TransFR's cross-domain task: learn in `source`, recommend in `target` to users who are in both (TransFR §4.1).

    The split "source" is leave-one-out over all of the source's users. The split "target" is leave-one-out over the
    overlapping users: its `train` serves local training only, its `history` is the user's source items (train and
    validation). Cold start trains on nothing of the target.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Literal["cross-domain"] = "cross-domain"
    source: str = Field(description="the domain that is learned from")
    target: str = Field(description="the domain that is recommended in")
    negatives: int = Field(99, ge=1, description="sampled items each held-out item is ranked against (items)")
    min_interactions: int = Field(
        3, ge=3, description="users with fewer distinct items in a domain are not evaluated there (items)"
    )

    def apply(self, dataset: Dataset, seed: int) -> tuple[Split, ...]:
        """The splits "source" and "target". Raises `InputError` as `LeaveOneOut`, and for domains that are not there."""
        for domain in (self.source, self.target):
            if domain not in dataset.domains:
                raise unknown(f"domain of data set '{dataset.name}'", domain, dataset.domains)
        if self.source == self.target:
            raise InputError(
                f"protocol.source and protocol.target are both '{self.source}'; name two domains"
            )
        rows = _first_times(dataset)
        domain = dataset.catalogue.domain[dataset.item[rows]]
        source = rows[domain == dataset.domains.index(self.source)]
        target = rows[domain == dataset.domains.index(self.target)]
        target = target[np.isin(dataset.user[target], dataset.user[source])]  # overlapping users only
        nothing = Ragged.empty(len(dataset.users))
        held = _hold_out(dataset, source, self.min_interactions)
        known = source[~held.test]
        history = Ragged.from_sorted(dataset.user[known], dataset.item[known], len(dataset.users))
        first = _split("source", dataset, source, held, nothing, self.negatives, seed)
        held = _hold_out(dataset, target, self.min_interactions)
        return first, _split("target", dataset, target, held, history, self.negatives, seed)

    def describe(self, dataset: Dataset) -> str:
        """One line that says how the numbers beside it were made."""
        rules = _rules(self.negatives, self.min_interactions)
        return (
            f"cross-domain {self.source} -> {self.target}, leave-one-out by {_clock(dataset)} within each domain; "
            f"all {self.source} users train, overlapping users are tested in {self.target} with their {self.source} "
            f"train and validation items as history; {rules}"
        )


ProtocolSettings = Annotated[LeaveOneOut | CrossDomain, Field(discriminator="name")]


def _clock(dataset: Dataset) -> str:
    return "time" if dataset.clock else "order (no clock times)"


def _rules(negatives: int, min_interactions: int) -> str:
    return (
        "newest item = test, second newest = validation, equal times by file order, a repeated item counts at its "
        f"first time; users under {min_interactions} items only train; sampled ranking: {negatives} fixed uniform "
        "negatives the user never had; full ranking: every item of the pool but the user's own earlier ones; ties "
        "count against the target"
    )


@dataclass(frozen=True)
class _HeldOut:
    """Masks over a selection of rows, bool [rows]."""

    valid: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


def _first_times(dataset: Dataset) -> npt.NDArray[np.int64]:
    """Rows where a user has an item for the first time, in the data set's order."""
    pairs = dataset.user.astype(np.int64) * len(dataset.catalogue) + dataset.item
    return np.sort(np.unique(pairs, return_index=True)[1])


def _hold_out(dataset: Dataset, rows: npt.NDArray[np.int64], min_interactions: int) -> _HeldOut:
    """Newest row of a user = test, the one before = validation; users with too few rows have neither."""
    counts = np.bincount(dataset.user[rows], minlength=len(dataset.users))
    last = np.cumsum(counts)[counts >= min_interactions] - 1
    if not len(last):
        raise InputError(
            f"no user of '{dataset.name}' has the {min_interactions} different items that this protocol needs; "
            "lower protocol.min_interactions or use more data"
        )
    valid, test = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    test[last], valid[last - 1] = True, True
    return _HeldOut(valid, test)


def _split(
    name: Literal["main", "source", "target"],
    dataset: Dataset,
    rows: npt.NDArray[np.int64],
    held: _HeldOut,
    history: Ragged,
    negatives: int,
    seed: int,
) -> Split:
    user, item, users = dataset.user[rows], dataset.item[rows], len(dataset.users)
    train = ~(held.valid | held.test)
    domain = dataset.catalogue.domain[item[0]] if name != "main" else None
    pool = _pool(dataset, domain)
    targets = {which: np.full(users, -1, np.int32) for which in ("valid", "test")}
    targets["valid"][user[held.valid]] = item[held.valid]
    targets["test"][user[held.test]] = item[held.test]
    evaluated = user[held.test].astype(np.int64)
    owned = _positions(user, item, pool, users).take(evaluated)
    _check_room(dataset, evaluated, owned, len(pool), negatives)
    candidates = {}
    for which, target in targets.items():
        key = keyed.key(seed, f"negatives/{name}/{which}")
        drawn = pool[sample_negatives(key, evaluated, owned, len(pool), negatives)]
        candidates[which] = np.concatenate([target[evaluated][:, None], drawn], axis=1)
    return Split(
        name,
        Ragged.from_sorted(user[train], item[train], users),
        history,
        targets["valid"],
        targets["test"],
        pool,
        candidates["valid"],
        candidates["test"],
    )


def _pool(dataset: Dataset, domain: int | None) -> Items:
    """Items that anyone has at least once, of one domain or of all: a listed item nobody has is never ranked."""
    used = np.unique(dataset.item)
    return used if domain is None else used[dataset.catalogue.domain[used] == domain]


def _positions(user: np.ndarray, item: np.ndarray, pool: Items, users: int) -> Ragged:
    """Every user's items as ascending positions in the pool."""
    position = np.searchsorted(pool, item)
    order = np.lexsort((position, user))
    return Ragged.from_sorted(user[order], position[order], users)


def _check_room(dataset: Dataset, evaluated: np.ndarray, owned: Ragged, pool: int, negatives: int) -> None:
    left = pool - owned.counts
    worst = int(np.argmin(left))
    if left[worst] < negatives:
        raise InputError(
            f"protocol.negatives is {negatives} but user '{dataset.users[evaluated[worst]]}' of '{dataset.name}' "
            f"leaves only {left[worst]} of {pool} items to draw from; set it to {max(left[worst], 0)} or less"
        )
