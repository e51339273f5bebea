"""The catalogue of a bundle has ids, titles, and which items may be recommended; it turns ids into numbers and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.clients import ItemIds, named, read_ids
from edge.manifest import StartBasis, Table
from edge.verified_files import exactly
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Catalogue:
    """These are the items of a bundle; `offered` bool [items] may be recommended, and drawn as negatives."""

    def __init__(self, bundle: Bundle) -> None:
        path, count = bundle.manifest.ids_file, bundle.manifest.item_count
        found = read_ids(bundle, path, ItemIds, count)
        self.ids, self.titles = found.ids, found.titles
        self._number = {item: number for number, item in enumerate(self.ids)}
        if len(self._number) != count:
            raise InputError(f"bundle {bundle.root}: {path}: ids repeat, so nobody knows which is meant; export again")
        self.offered = np.ones(count, bool)
        if "offered" in found.model_fields_set:
            self.offered[:] = False
            self.offered[self.numbers(found.offered)] = True

    @property
    def items(self) -> int:
        return len(self.ids)

    @property
    def offered_items(self) -> Ints:
        """Return the numbers of the offered items, ascending."""
        return np.flatnonzero(self.offered)

    def numbers(self, items: Iterable[str | int]) -> Ints:
        """Return the numbers in the catalogue of items given by id or number.

        `InputError` for one that is not in it.
        """
        if isinstance(items, str):
            raise InputError(f"items must be a list of ids or numbers, got the text '{items}'; write ['{items}']")
        out = []
        for item in items:
            if not isinstance(item, str | int | np.integer) or isinstance(item, bool):
                raise InputError(f"an item is an id (text) or a number in the catalogue, got {item!r}")
            number = named("item", item, self._number) if isinstance(item, str) else int(item)
            if not 0 <= number < self.items:
                raise InputError(f"item number {number} is outside the catalogue (0 to {self.items - 1})")
            out.append(number)
        return np.asarray(out, np.int64)

    def left(self, k: int, left_out: Ints) -> Ints:
        """Return the numbers of the offered items that are not in `left_out`, ascending, of which `k` are asked for.

        Raises `InputError` for k < 1, and when nothing is left.
        """
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k}")
        left = self.offered.copy()
        left[left_out] = False
        candidates = np.flatnonzero(left)
        if not len(candidates):
            raise InputError(f"nothing to recommend: all {self.items:,} items are seen or excluded; exclude fewer")
        return candidates

    def named(self, item: int, value: float) -> tuple[str, str, float]:
        """Return (id, title, value) of an item number."""
        return self.ids[item], self.titles[item], value


def top(scores: Floats, k: int) -> Ints:
    """Positions of the k largest scores, best first, ties by position.

    >>> top(np.array([1.0, 3.0, 3.0, 2.0], np.float32), 3).tolist()
    [1, 2, 3]
    """
    if k < len(scores):
        least = np.partition(scores, -k)[-k]
        candidates = np.flatnonzero(scores >= least)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k]


TYPES = {"i8": np.int8, "f16": np.float16, "f32": np.float32, "i32": np.int32}


def open_table(bundle: Bundle, table: Table) -> Callable[[Any], npt.NDArray[Any]]:
    """Map a table's files; return what gives rows [n, width] of items: float32, or token numbers as they are.

    Raises `InputError` naming the file whose type or shape differ from the manifest.
    """
    items, scale = bundle.manifest.item_count, None
    values = load_array(bundle, table.path, TYPES[table.dtype], (items, table.width))
    if table.dtype == "i8":
        if table.scale is None:
            raise InputError(f"bundle {bundle.root}: int8 table {table.path} has no scale file; export again")
        scale = np.asarray(load_array(bundle, table.scale, np.float32, (items,)))

    def rows(wanted: slice | Ints) -> npt.NDArray[Any]:
        if values.dtype == np.int32:
            return np.asarray(values[wanted])
        found = np.array(values[wanted], np.float32)
        if scale is not None:
            found *= scale[wanted, None]
        return found

    return rows


def load_array(bundle: Bundle, path: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Load a memory-mapped .npy file of exactly this type and shape."""
    file = bundle.file(path)
    return exactly(file, f"bundle {bundle.root}: {path}", dtype, shape, bundle.entry(file))


Listed = tuple[str, str, float]
Basis = Literal["model", StartBasis, "none"]

NEW, ALIKE = "this device has no history", "the model does not tell items apart for this user"
SAID: dict[Basis, str] = {
    "popular": "popular",
    "mean": "the model's default order for a new user",
    "none": "no ranking yet",
}


@dataclass(frozen=True)
class StartList:
    """These are items for somebody without history, best first, and the `basis` of their order."""

    basis: StartBasis
    items: Ints

    @classmethod
    def of(cls, bundle: Bundle) -> StartList | None:
        """Read a bundle's; None where it has none. Raises `InputError` for items that it has not, or has twice."""
        record = bundle.config.start
        if record is None:
            return None
        items = load_array(bundle, record.path, np.int32, (record.count,)).astype(np.int64)
        if len(np.unique(items)) < len(items) or items.min() < 0 or items.max() >= bundle.manifest.item_count:
            raise InputError(f"bundle {bundle.root}: {record.path} names items twice or unknown ones; export again")
        return cls(record.basis, items)


class Recommendations(list[Listed]):
    """Items are listed as (id, title, score), best first; `basis` says what they are ranked by.

    model: the user's own scores. popular: how many people had them; mean: the model, of nobody in particular; both
    without scores (NaN). none: there is no ranking yet. `why` says why it is not the user's own scores.
    """

    def __init__(self, basis: Basis, items: Iterable[Listed], why: str = ""):
        super().__init__(items)
        self.basis, self.why = basis, why

    def __repr__(self) -> str:
        return super().__repr__() if self.basis == "model" else f"<{self.said}: {super().__repr__()}>"

    @property
    def said(self) -> str:
        """Return the basis in words; nothing where it is the user's own scores."""
        return "" if self.basis == "model" else f"{SAID[self.basis]}, since {self.why}"


def ranked(
    left: Ints,
    k: int,
    scores: Floats | None,
    start: Callable[[], StartList | None],
    named: Callable[[int, float], Listed],
) -> Recommendations:
    """Return the k best of the items that are `left`, ascending numbers, by a user's `scores` [items], ties by number.

    `scores` are None for a user who has had nothing. Then, and where all are the same, those of the `start` list.
    """
    if scores is not None and (len(left) == 1 or np.ptp(scores[left]) > 0):
        best = left[top(scores[left], k)].tolist()
        return Recommendations("model", [named(item, float(scores[item])) for item in best])
    first, why = start(), NEW if scores is None else ALIKE
    found = [] if first is None else first.items[np.isin(first.items, left)][:k].tolist()
    basis: Basis = first.basis if first is not None and found else "none"
    return Recommendations(basis, [named(item, math.nan) for item in found], why)
