"""Interactions are columns: who had what and when, and items' texts.

Owns: the three tables that all other parts read. Does not own: their source (readers), their cut (splits).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.config.arguments import checked
from edgefr.data.sorting import stable_order
from privacy.plain_text import plain

Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.str_]

_DIGITS = "0123456789"
_FITS = 18  # decimal digits that every int64 holds


def id_order(ids: Texts, after: Texts | None = None) -> Ints:
    """Return the order of ids, int64 [n]: by the text before the digits at the end, then by their number, then as text.

    `after` [n] decides between equal ids.

    >>> ids = np.array(["10", "b2", "9", "b10", "a"])
    >>> ids[id_order(ids)].tolist()
    ['9', '10', 'a', 'b2', 'b10']
    """
    if not len(ids) or _are_numbers(ids):
        numbers = ids.astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        if (np.diff(numbers[order]) != 0).all():
            return order
    before = np.char.rstrip(ids, _DIGITS)
    ends = [one[len(head) :] for one, head in zip(ids.tolist(), before.tolist(), strict=True)]
    number = np.char.lstrip(np.array(ends), "0")
    last = () if after is None else (after,)
    return np.lexsort((*last, ids, number, np.char.str_len(number), before))


def places(order: Ints) -> Ints:
    """Return where each number stands in an order of all of them, int64 [n].

    >>> places(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _are_numbers(ids: Texts) -> bool:
    length = np.char.str_len(ids)
    return bool(length.min() > 0 and length.max() <= _FITS and (np.char.strip(ids, _DIGITS) == "").all())


@dataclass(frozen=True, repr=False)
class Catalogue:
    """The catalogue is what is known of every item; position i is item number i.

    `ids` are the data set's own (str), unique within a domain. `text` joins category, title and description
    in that order (TransFR §3.2.3); "" means nothing is known. `domain` is uint8 [items], an index into
    `Dataset.domains`. `categories`: of every item, such as a film's genres; empty where the data set names none.
    Titles are shown on terminals and pages, so whatever reads a catalogue, they are single lines without control signs.
    """

    ids: npt.NDArray[np.str_]
    title: list[str]
    text: list[str]
    domain: npt.NDArray[np.uint8]
    categories: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", [plain(title) for title in self.title])

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Catalogue: {len(self):,} items, {sum(map(bool, self.text)):,} with text>"

    def take(self, items: npt.NDArray[np.integer]) -> Catalogue:
        title, text = ([column[i] for i in items] for column in (self.title, self.text))
        categories = [self.categories[i] for i in items] if self.categories else []
        return Catalogue(self.ids[items], title, text, self.domain[items], categories)


def item_text(category: str, title: str, description: str = "") -> str:
    """Return an item's text from its parts, most telling first (TransFR §3.2.3); empty parts are left out.

    >>> item_text("Comedy", " Clerks (1994) ")
    'Comedy. Clerks (1994)'
    """
    return ". ".join(part for part in (category.strip(), title.strip(), description.strip()) if part)


@dataclass(frozen=True)
class Kinds:
    """These are kinds of interaction by row: `names[number[i]]`, `number` int8 [n]; `dropped`:

    kinds that sessions drop by default.
    """

    number: npt.NDArray[np.int8]
    names: tuple[str, ...]
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Dataset:
    """A data set holds interactions sorted by (user, time, order in the file), with their users and items.

    `user`, `item` int32 [n] are dense numbers: users and items in the order of their ids (`id_order`). `time` int64
    [n] is unix seconds when `clock`, otherwise only an order. `offsets` int64 [users + 1] cuts the rows into users.
    Repeated (user, item) pairs are kept; protocols decide. `source` says where it came from: archive, url, licence,
    sha256, notes.

    What only some data sets have: `exact` int64 [n], the time in the archive's own unit where that is finer than
    seconds (rows of one second stand by it); `session` int64 [n], the session a row belongs to, and `part` uint8 [n],
    0 training, 1 validation, 2 test, where they were released with it (a session lies in one part, and a user has at
    most one of validation and one of test); `kinds`, the rows' kinds of interaction; `block` int16 [n], the block of
    time a row is of where blocks were released, whose `part` is then of the user's items of the block.
    """

    name: str
    users: npt.NDArray[np.str_]
    catalogue: Catalogue
    user: npt.NDArray[np.int32]
    item: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    domains: tuple[str, ...]
    clock: bool
    offsets: npt.NDArray[np.int64]
    source: dict[str, Any] = field(default_factory=dict)
    session: npt.NDArray[np.int64] | None = None
    part: npt.NDArray[np.uint8] | None = None
    kinds: Kinds | None = None
    exact: npt.NDArray[np.int64] | None = None
    block: npt.NDArray[np.int16] | None = None

    @property
    def moment(self) -> npt.NDArray[np.int64]:
        """Return every row's time as finely as it is known, int64 [n]: what orders rows and tells them apart."""
        return self.time if self.exact is None else self.exact

    def beside(self, rows: npt.NDArray[Any]) -> dict[str, Any]:
        """Return what only some data sets have, of these rows, by field."""
        found = {name: getattr(self, name) for name in ("exact", "session", "part", "block")}
        kinds = None if self.kinds is None else replace(self.kinds, number=self.kinds.number[rows])
        return {name: None if column is None else column[rows] for name, column in found.items()} | {"kinds": kinds}

    @classmethod
    @checked
    def from_frame(
        cls, interactions: Any, items: Any = None, columns: Mapping[str, str] | None = None, **options: Any
    ) -> Dataset:
        """Make a data set of a data frame: of pandas, polars or arrow, one row for each interaction.

        `items` is a frame with a row for each item and its texts. `columns` names what has not its usual name, as
        ``{"user": "uid"}``; `options` are those of a file (`positive`, `user_core`, `texts`, ...), and `name`. Raises
        `InputError` naming row and column.

        >>> import pandas
        >>> frame = pandas.DataFrame({"uid": [1, 1, 2], "movie": ["a", "b", "a"], "rating": [5, 2, 4]})
        >>> Dataset.from_frame(frame, positive=4).statistics()["interactions"]
        2
        """
        read = importlib.import_module("edgefr.data.files.reader").from_frame  # which is made of data sets itself
        found: Dataset = read(interactions, items, columns, str(options.pop("name", "frame")), options)
        return found

    def __repr__(self) -> str:
        time = "in an order without clock"
        if self.clock and len(self.time):
            time = " to ".join(str(np.datetime64(int(at), "s"))[:10] for at in (self.time.min(), self.time.max()))
        beside = [name for name in ("session", "part", "kinds", "block") if getattr(self, name) is not None]
        lines = [
            f"<{type(self).__name__} '{self.name}': {len(self.users):,} users, {len(self.catalogue):,} items, "
            f"{len(self.user):,} interactions, {time}",
            f" domains: {', '.join(self.domains[:8])}{', ...' if len(self.domains) > 8 else ''}; "
            f"items with text: {sum(map(bool, self.catalogue.text)):,}"
            + (f"; also: {', '.join(beside)}" if beside else "")
            + ">",
        ]
        return "\n".join(lines)

    def statistics(self) -> dict[str, Any]:
        """Return counts for a report: users, items with at least one interaction, listed items, repeats, per domain.

        `users` counts those with an interaction; a table may hold users with none.
        """
        users, items = len(self.users), len(self.catalogue)
        pairs = np.unique(self.user.astype(np.int64) * max(items, 1) + self.item)
        active, used = pairs // max(items, 1), np.unique(self.item)
        counts = np.bincount(active, minlength=users)
        domain = self.catalogue.domain[self.item]
        shared = len(np.unique(self.user))
        per_domain = {}
        for number, name in enumerate(self.domains):
            rows = domain == number
            who = np.unique(self.user[rows])
            per_domain[name] = {
                "users": len(who),
                "items": int((self.catalogue.domain[used] == number).sum()),
                "interactions": int(rows.sum()),
            }
        overlap = np.unique(self.user.astype(np.int64) * 256 + domain) // 256
        return {
            "users": shared,
            "items": len(used),
            "listed_items": items,
            "interactions": len(self.item),
            "repeated_pairs": len(self.item) - len(pairs),
            "density": len(pairs) / (shared * len(used)) if shared else 0.0,
            "items_per_user": _spread(counts[counts > 0]),
            "items_with_text": int(sum(bool(t) for t in self.catalogue.text)),
            "users_in_several_domains": int((np.bincount(overlap, minlength=1) > 1).sum()),
            "domains": per_domain,
            "time": [int(self.time.min()), int(self.time.max())] if self.clock and len(self.time) else None,
        }


def _spread(counts: npt.NDArray[np.int64]) -> dict[str, float]:
    if not len(counts):
        return {"min": 0, "median": 0, "mean": 0.0, "max": 0}
    return {
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "mean": round(float(counts.mean()), 2),
        "max": int(counts.max()),
    }


def assemble(
    name: str,
    users: npt.NDArray[np.str_],
    catalogue: Catalogue,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    domains: tuple[str, ...],
    clock: bool,
    source: dict[str, Any],
    session: np.ndarray | None = None,
    part: np.ndarray | None = None,
    kinds: Kinds | None = None,
    per_second: int = 1,
    block: np.ndarray | None = None,
) -> Dataset:
    """Make a `Dataset` from (user, item, time) columns in file order, sorted by user, time, file order.

    Users and items are numbered by their ids. `per_second`: units of the times per second; they order rows, and are
    kept where seconds would lose order.
    """
    user, item, time = rows
    people, items = id_order(users), id_order(catalogue.ids, np.array(domains)[catalogue.domain])
    users, user = users[people], places(people)[user]
    catalogue, item = catalogue.take(items), places(items)[item]
    order = _by_user_and_time(user, time)  # stable: equal times stay in file order
    user = user[order].astype(np.int32)
    offsets = np.searchsorted(user, np.arange(len(users) + 1)).astype(np.int64)
    exact = time[order].astype(np.int64)
    columns = (user, item[order].astype(np.int32), exact if per_second == 1 else exact // per_second)
    return Dataset(
        name,
        users,
        catalogue,
        *columns,
        domains,
        clock,
        offsets,
        source,
        session=None if session is None else session[order].astype(np.int64),
        part=None if part is None else part[order].astype(np.uint8),
        kinds=None if kinds is None else replace(kinds, number=kinds.number[order].astype(np.int8)),
        exact=exact if (exact % per_second).any() else None,
        block=None if block is None else block[order].astype(np.int16),
    )


def _by_user_and_time(user: np.ndarray, time: np.ndarray) -> npt.NDArray[np.int64]:
    """Return the order `np.lexsort((time, user))`, several times faster."""
    if not len(user):
        return np.empty(0, np.int64)
    first, last = int(time.min()), int(time.max())
    if last - first >= 1 << 62:
        return np.lexsort((time, user))
    order = stable_order(time.astype(np.int64) - first, last - first + 1)
    people = user.astype(np.int64)[order]
    return order[stable_order(people, int(people.max()) + 1)]


def k_core(user: np.ndarray, item: np.ndarray, users: int, items: int) -> npt.NDArray[np.bool_]:
    """Return the rows left when users under `users` and items under `items` interactions are dropped until none is.

    Returns a mask over the rows, bool [n]. Repeats count as interactions.

    >>> k_core(np.array([0, 0, 1]), np.array([0, 1, 1]), users=2, items=1).tolist()
    [True, True, False]
    """
    keep = np.ones(len(user), bool)
    while True:
        enough = np.bincount(user[keep], minlength=1 + user.max(initial=0)) >= users
        known = np.bincount(item[keep], minlength=1 + item.max(initial=0)) >= items
        left = keep & enough[user] & known[item]
        if left.sum() == keep.sum():
            return keep
        keep = left
