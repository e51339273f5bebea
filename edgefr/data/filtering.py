"""A data set with fewer rows: without repeats, thinned to a core, with only the users and items that are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Dataset, k_core
from edgefr.data.sorting import first_of
from privacy.errors import InputError

Mask = npt.NDArray[np.bool_]
Repeats = Literal["once", "keep", "first", "last"]
"""Rows of one user and item: once at a time, all, or the first or last of them."""


def thinned(dataset: Dataset, repeats: Repeats, user_core: int, item_core: int, counted: str = "") -> Dataset:
    """Return the data set without repeats, then without thin users and items; its notes say so.

    `counted` names its interactions. Raises `InputError` where nothing is left.
    """
    once = kept(dataset, once_each(dataset, repeats))
    out = kept(once, core_of(once, user_core, item_core))
    cores = {f"users from {user_core} interactions": user_core, f"items from {item_core} interactions": item_core}
    said = [counted, *(text for text, least in cores.items() if least > 1)]
    notes = "; ".join(text for text in (dataset.source.get("notes", ""), *said) if text)
    return replace(out, source={**dataset.source, "notes": notes})


def kept(dataset: Dataset, keep: Mask) -> Dataset:
    """Return these rows alone, with the users and items that have some, in the order that they had."""
    return dataset if keep.all() else rows_of(dataset, keep)


def rows_of(dataset: Dataset, keep: Mask) -> Dataset:
    """Return the same, also without users and items that had no rows before."""
    user, item = dataset.user[keep], dataset.item[keep]
    users, items = (np.bincount(column, minlength=1) > 0 for column in (user, item))
    user, item = (np.cumsum(there, dtype=np.int32)[column] - 1 for there, column in ((users, user), (items, item)))
    people = np.flatnonzero(users)
    return replace(
        dataset,
        users=dataset.users[people],
        catalogue=dataset.catalogue.take(np.flatnonzero(items)),
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        time=dataset.time[keep],
        offsets=np.searchsorted(user, np.arange(len(people) + 1)).astype(np.int64),
        **dataset.beside(keep),
    )


def without_users(dataset: Dataset, stay: Mask) -> Dataset:
    """Return the data set of these users alone, bool [users]; listed items that nobody ever had stay listed."""
    if stay.all():
        return dataset
    rows, items = stay[dataset.user], len(dataset.catalogue)
    had, left = (np.bincount(item, minlength=items) > 0 for item in (dataset.item, dataset.item[rows]))
    listed, out = np.flatnonzero(left | ~had), rows_of(dataset, rows)
    number = np.cumsum(left | ~had, dtype=np.int32) - 1
    return replace(out, catalogue=dataset.catalogue.take(listed), item=number[dataset.item[rows]])


def of_users(dataset: Dataset, users: Sequence[str], user_core: int = 1, item_core: int = 1) -> Dataset:
    """Return what the data set would be if nobody but these users had ever been in it; its notes count the others.

    Cores are counted again: thinning what is left of a core gives what thinning all the rest gives. Items that only the
    others had go too. Raises `InputError` where nobody is left.
    """
    stay = np.isin(dataset.users, list(users))
    if not stay.any():
        raise InputError(f"nobody of '{dataset.name}' is left to learn from")
    left = without_users(dataset, stay)
    left = kept(left, core_of(left, user_core, item_core))
    said = f"without users who left: {int((~stay).sum()):,} of {len(stay):,}"
    notes = "; ".join(filter(None, (dataset.source.get("notes", ""), said)))
    return left if stay.all() else replace(left, source={**dataset.source, "notes": notes})


def once_each(dataset: Dataset, repeats: Repeats) -> Mask:
    """Return which rows are left of those that one user and one item share."""
    keep = np.ones(len(dataset.user), bool)
    if repeats == "keep":
        return keep
    user, item, time = dataset.user, dataset.item, dataset.moment
    if repeats == "once":  # only rows at the same moment of the same user have to be looked at
        same = (user[1:] == user[:-1]) & (time[1:] == time[:-1])
        close = np.flatnonzero(np.append(False, same) | np.append(same, False))
        moment = np.cumsum(np.append(True, ~same))[close]
        keep[close] = first_of(moment.astype(np.int64) * len(dataset.catalogue) + item[close])
        return keep
    pairs = user.astype(np.int64) * len(dataset.catalogue) + item
    return first_of(pairs) if repeats == "first" else first_of(pairs[::-1])[::-1]


def core_of(dataset: Dataset, user_core: int, item_core: int) -> Mask:
    """Return which rows are left of users and items with enough interactions."""
    if user_core == item_core == 1:
        return np.ones(len(dataset.user), bool)
    keep = k_core(dataset.user, dataset.item, user_core, item_core)
    if not keep.any():
        raise InputError(
            f"no user and item of '{dataset.name}' has {user_core} and {item_core} interactions; lower "
            "data_options.user_core and data_options.item_core"
        )
    return keep
