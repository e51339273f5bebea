"""Rows become a data set: sorted, without repeats, thinned to a core, with only users and items that are left.

Owns: which rows of a table are interactions of the data set. Does not own: reading them (`rows`), texts (`texts`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.options import FileOptions
from edgefr.data.files.rows import Rows, by_appearance
from edgefr.data.interactions import Catalogue, Dataset, assemble, k_core
from privacy.errors import InputError

Mask = npt.NDArray[np.bool_]

_MOST_DOMAINS = 255


def make(name: str, rows: Rows, options: FileOptions, source: dict[str, Any]) -> Dataset:
    """Return the data set of these rows, whose items have no texts yet. Raises `InputError` where nothing is left."""
    item, catalogue, domains = _listed(name, rows)
    users = np.array(rows.users.to_pylist(), dtype=np.str_)
    columns = (rows.user, item, rows.time)
    dataset = assemble(name, users, catalogue, columns, domains, rows.clock, source, rows.session, rows.part)
    once = kept(dataset, _once(dataset, options.repeats))
    core = kept(once, _core(once, options))
    _check_sessions(core)
    left_out = {
        f"are rated below {options.positive} (data_options.positive)": rows.below,
        f"repeat another (data_options.repeats={options.repeats})": len(dataset.user) - len(once.user),
        f"are of users with under {options.user_core} or items with under {options.item_core} interactions": (
            len(once.user) - len(core.user)
        ),
    }
    said = [f"{number:,} of {rows.read:,} rows {why}" for why, number in left_out.items() if number]
    return replace(core, source={**source, "notes": "; ".join(said)})


def kept(dataset: Dataset, keep: Mask) -> Dataset:
    """Return these rows alone, with the users and items that have some, in the order that they had."""
    if keep.all():
        return dataset
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
        session=None if dataset.session is None else dataset.session[keep],
        part=None if dataset.part is None else dataset.part[keep],
    )


def _listed(name: str, rows: Rows) -> tuple[npt.NDArray[np.int32], Catalogue, tuple[str, ...]]:
    """Return the rows' items, the catalogue without texts, and the domains: items of two domains are two items."""
    if rows.domain is None:
        nothing = [""] * len(rows.items)
        ids = np.array(rows.items.to_pylist(), dtype=np.str_)
        return rows.item, Catalogue(ids, nothing, nothing, np.zeros(len(ids), np.uint8)), ("items",)
    if len(rows.domains) > _MOST_DOMAINS:
        raise InputError(
            f"{name}: the domain column has {len(rows.domains):,} values, and {_MOST_DOMAINS} is the most; name "
            "another by data_options.columns.domain, or leave it alone by data_options.columns.domain=-"
        )
    pairs, item = np.unique(rows.item.astype(np.int64) * len(rows.domains) + rows.domain, return_inverse=True)
    import pyarrow as pa

    item, pairs = by_appearance(item.astype(np.int32), pa.array(pairs))
    of, domain = np.divmod(pairs.to_numpy(), len(rows.domains))
    ids = np.array(rows.items.take(pa.array(of)).to_pylist(), dtype=np.str_)
    nothing = [""] * len(ids)
    return item, Catalogue(ids, nothing, nothing, domain.astype(np.uint8)), tuple(rows.domains)


def _once(dataset: Dataset, repeats: str) -> Mask:
    """Return which rows are left of those that one user and one item share."""
    keep = np.ones(len(dataset.user), bool)
    if repeats == "keep":
        return keep
    user, item, time = dataset.user, dataset.item, dataset.time
    if repeats == "once":  # only rows at the same moment of the same user have to be looked at
        same = (user[1:] == user[:-1]) & (time[1:] == time[:-1])
        close = np.flatnonzero(np.append(False, same) | np.append(same, False))
        moment = np.cumsum(np.append(True, ~same))[close]
        keep[close] = _first(moment.astype(np.int64) * len(dataset.catalogue) + item[close])
        return keep
    pairs = user.astype(np.int64) * len(dataset.catalogue) + item
    return _first(pairs) if repeats == "first" else _first(pairs[::-1])[::-1]


def _first(keys: npt.NDArray[np.int64]) -> Mask:
    """Say which keys stand nowhere before."""
    first = np.zeros(len(keys), bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def _core(dataset: Dataset, options: FileOptions) -> Mask:
    """Return which rows are left of users and items with enough interactions."""
    if options.user_core == options.item_core == 1:
        return np.ones(len(dataset.user), bool)
    keep = k_core(dataset.user, dataset.item, options.user_core, options.item_core)
    if not keep.any():
        raise InputError(
            f"no user and item of '{dataset.name}' has {options.user_core} and {options.item_core} interactions; lower "
            "data_options.user_core and data_options.item_core"
        )
    return keep


def _check_sessions(dataset: Dataset) -> None:
    """Raise `InputError` where a session has rows of two parts, which a protocol cannot keep."""
    if dataset.session is None or dataset.part is None:
        return
    of = dataset.user.astype(np.int64) * (int(dataset.session.max(initial=0)) + 1) + dataset.session
    _, first, which = np.unique(of, return_index=True, return_inverse=True)
    mixed = dataset.part != dataset.part[first][which]
    if mixed.any():
        who = dataset.users[dataset.user[int(mixed.argmax())]]
        raise InputError(
            f"'{dataset.name}': a session of user '{who}' has rows of two parts of the split; give each session "
            "one, or set data_options.columns.split=-"
        )
