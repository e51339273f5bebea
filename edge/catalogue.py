"""The catalogue of a bundle has ids, titles, and which items may be recommended; it turns ids into numbers and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.clients import named, read_json, read_strings
from edge.manifest import Table
from edge.verified_files import exactly
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Catalogue:
    """These are the items of a bundle; `offered` bool [items] may be recommended, and drawn as negatives."""

    def __init__(self, bundle: Bundle) -> None:
        path, count = bundle.manifest.ids_file, bundle.manifest.item_count
        self.ids = read_strings(bundle, path, "ids", count)
        self.titles = read_strings(bundle, path, "titles", count)
        self._number = {item: number for number, item in enumerate(self.ids)}
        if len(self._number) != count:
            raise InputError(f"bundle {bundle.root}: {path}: ids repeat, so nobody knows which is meant; export again")
        self.offered = np.ones(count, bool)
        if "offered" in read_json(bundle, path):
            self.offered[:] = False
            self.offered[self.numbers(read_strings(bundle, path, "offered"))] = True

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


@dataclass(frozen=True)
class ItemTable:
    """This is one table of the catalogue: `values` [items, width] on disk, `scale` [items] for int8."""

    values: npt.NDArray[np.generic]
    scale: Floats | None

    def rows(self, items: slice | npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return rows of these items [n, width] as float32; token numbers as they are."""
        if self.values.dtype == np.int32:
            return np.asarray(self.values[items])
        rows = np.array(self.values[items], np.float32)
        if self.scale is not None:
            rows *= self.scale[items, None]
        return rows


def open_table(bundle: Bundle, table: Table) -> ItemTable:
    """Map a table's files; `InputError` naming the file when type or shape differ from the manifest."""
    items = bundle.manifest.item_count
    values = load_array(bundle, table.path, TYPES[table.dtype], (items, table.width))
    if table.dtype != "i8":
        return ItemTable(values, None)
    if table.scale is None:
        raise InputError(f"bundle {bundle.root}: int8 table {table.path} has no scale file; export again")
    return ItemTable(values, np.asarray(load_array(bundle, table.scale, np.float32, (items,))))


def load_array(bundle: Bundle, path: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Load a memory-mapped .npy file of exactly this type and shape."""
    file = bundle.file(path)
    return exactly(file, f"bundle {bundle.root}: {path}", dtype, shape, bundle.entry(file))
