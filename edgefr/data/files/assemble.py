"""Rows become a data set: sorted, without repeats, thinned to a core, with only users and items that are left.

Owns: which rows of a table are interactions of the data set. Does not own: reading them (`rows`), texts (`texts`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.arrow import pa
from edgefr.data.files.options import FileOptions
from edgefr.data.files.rows import Rows, by_appearance, texts_of
from edgefr.data.filtering import core_of, kept, once_each
from edgefr.data.interactions import Catalogue, Dataset, assemble
from privacy.errors import InputError

_MOST_DOMAINS = 255
_FORWARD = 0.9  # steps from a user's row to the next one, of those that change the time: a log is seldom quite in order


def make(name: str, rows: Rows, options: FileOptions, source: dict[str, Any]) -> Dataset:
    """Return the data set of these rows, whose items have no texts yet. Raises `InputError` where nothing is left."""
    item, catalogue, domains = _listed(name, rows)
    users = texts_of(rows.users)
    columns = (rows.user, item, rows.time)
    clock, unit = rows.per_second is not None, rows.per_second or 1
    of = (name, users, catalogue, columns, domains, clock, source)
    dataset = assemble(*of, session=rows.session, part=rows.part, block=rows.block, per_second=unit)
    once = kept(dataset, once_each(dataset, options.repeats))
    people = once if options.user_most is None else kept(once, _few_enough(name, once, options.user_most))
    core = kept(people, core_of(people, options.user_core, options.item_core))
    check_sessions(core)
    left_out = {
        f"are rated below {options.positive} (data_options.positive)": rows.below,
        f"repeat another (data_options.repeats={options.repeats})": len(dataset.user) - len(once.user),
        f"are of users with over {options.user_most} interactions (data_options.user_most)": (
            len(once.user) - len(people.user)
        ),
        f"are of users with under {options.user_core} or items with under {options.item_core} interactions": (
            len(people.user) - len(core.user)
        ),
    }
    said = [f"{number:,} of {rows.read:,} rows {why}" for why, number in left_out.items() if number]
    told = {"notes": "; ".join([*rows.notes, *said]), "rows": rows.read}
    newest = _newest_of_ties(rows) if options.ties == "auto" else options.ties
    more = {"ties": newest} if clock and newest == "last" else {}
    low = {"low_rated": options.positive} if rows.below else {}
    return replace(core, source={**source, **told, **more, **low})


def _newest_of_ties(rows: Rows) -> str:
    """Return which of equal times is newest: "last" in a file whose users are in order of time."""
    order = np.argsort(rows.user, kind="stable")
    step = np.diff(rows.time[order])[np.diff(rows.user[order]) == 0]
    forward, back = int((step > 0).sum()), int((step < 0).sum())
    return "last" if forward and forward >= _FORWARD * (forward + back) else "first"


def _few_enough(name: str, dataset: Dataset, most: int) -> npt.NDArray[np.bool_]:
    """Return, for every row, whether its user has no more than `most`. Raises `InputError` where nobody has."""
    found: npt.NDArray[np.bool_] = np.diff(dataset.offsets)[dataset.user] <= most
    if not found.any():
        least = int(np.diff(dataset.offsets).min())
        raise InputError(
            f"every user of '{name}' has over {most} interactions; raise data_options.user_most to {least}"
        )
    return found


def _listed(name: str, rows: Rows) -> tuple[npt.NDArray[np.int32], Catalogue, tuple[str, ...]]:
    """Return the rows' items, the catalogue without texts, and the domains: items of two domains are two items."""
    if rows.domain is None:
        nothing = [""] * len(rows.items)
        ids = texts_of(rows.items)
        return rows.item, Catalogue(ids, nothing, nothing, np.zeros(len(ids), np.uint8)), ("items",)
    if len(rows.domains) > _MOST_DOMAINS:
        raise InputError(
            f"{name}: the domain column has {len(rows.domains):,} values, and {_MOST_DOMAINS} is the most; name "
            "another by data_options.columns.domain, or leave it alone by data_options.columns.domain=-"
        )
    pairs, item = np.unique(rows.item.astype(np.int64) * len(rows.domains) + rows.domain, return_inverse=True)
    item, pairs = by_appearance(item.astype(np.int32), pa.array(pairs))
    of, domain = np.divmod(pairs.to_numpy(), len(rows.domains))
    ids = texts_of(rows.items)[of]
    nothing = [""] * len(ids)
    return item, Catalogue(ids, nothing, nothing, domain.astype(np.uint8)), tuple(rows.domains)


def check_sessions(dataset: Dataset) -> None:
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
