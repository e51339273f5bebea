"""Rows of a table become columns of numbers: users, items and times, and what else the table has.

Owns: reading the interactions, every row checked before any is left out. Does not own: which rows a data set keeps
(`assemble`), texts (`texts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files import clock_columns as clocks
from edgefr.data.files.arrow import pa
from edgefr.data.files.checked_values import A_PART, PARTS, blocks, ids, labels, missing, numbers
from edgefr.data.files.options import FileOptions
from edgefr.data.files.table import Column, OpenTable
from edgefr.data.files.times import Part, Times, joined
from privacy.errors import InputError

Codes = npt.NDArray[np.int32]
_IDS = ("user", "item", "session", "domain")
_RATING = "a rating is a finite number; if the column is none, set data_options.columns.rating=-"
_STARS = "a rating is 0 to 5"


@dataclass
class Rows:
    """These are a table's interactions in its order: numbers of ids [n], and the ids that they number.

    `time` int64 [n] has `per_second` units a second, or is an order (None). `session`, `domain`, `part`, `block` and
    `kind` are None without such a column. `below` of `read` rows were rated too low. `ratings`: lowest, mean and
    highest, or nothing. `texts`: columns beside the rows. `notes`: about rows that were left out.
    """

    user: Codes
    users: pa.Array
    item: Codes
    items: pa.Array
    time: npt.NDArray[np.int64]
    per_second: int | None
    session: Codes | None
    sessions: pa.Array
    domain: Codes | None
    domains: list[str]
    part: npt.NDArray[np.uint8] | None
    block: npt.NDArray[np.int16] | None
    kind: npt.NDArray[np.int8] | None
    read: int
    below: int
    ratings: tuple[float, ...]
    texts: dict[str, pa.ChunkedArray]
    notes: list[str]


@dataclass(frozen=True)
class Published:
    """This is what is known of a public table beforehand.

    `kinds`: names of the kinds of interaction, by number ("": no kind), of which `skipped` are not kept. `stars`:
    ratings are 0 to 5. `earliest`: the first time that there may be, unix s.
    """

    kinds: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    stars: bool = False
    earliest: int = 0


def read_rows(
    table: OpenTable,
    columns: dict[str, str],
    options: FileOptions,
    texts: Sequence[str] = (),
    known: Published | None = None,
) -> Rows:
    """Read a table's interactions; `columns` by role. Raises `InputError` naming row and column."""
    if options.positive is not None and "rating" not in columns:
        raise InputError(
            f"{table.name}: no column has a usual name of a rating, so data_options.positive has nothing to compare; "
            "say which by data_options.columns.rating=NAME, or drop it"
        )
    if options.time not in ("auto", "none") and "time" not in columns:
        raise InputError(
            f"{table.name}: no column has a usual name of a time, so data_options.time has nothing to read; say which "
            "by data_options.columns.time=NAME, or drop it"
        )
    if "clock" in columns and "time" not in columns:
        raise InputError(f"{table.name}: data_options.columns.clock needs a day; name it by data_options.columns.time")
    if options.time == "none":
        columns = {role: name for role, name in columns.items() if role not in ("time", "clock")}
    gathered = _Gathered(table, columns, options, texts, known or Published())
    for first, block in table.read(list(dict.fromkeys([*columns.values(), *texts]))):
        gathered.add(first, block)
    return gathered.rows()


class _Gathered:
    """Rows of a table are added block by block."""

    def __init__(
        self, table: OpenTable, columns: dict[str, str], options: FileOptions, texts: Sequence[str], known: Published
    ):
        self.table, self.columns, self.options, self.texts, self.known = table, columns, options, texts, known
        self.times, self.digits = Times(options.time, known.earliest), list[int]()
        self.read = self.below = self.without = 0
        self.dropped: dict[str, int] = {}
        self.low, self.total, self.high = np.inf, 0.0, -np.inf
        self.kept: dict[str, list[Any]] = {}

    def add(self, first: int, block: pa.RecordBatch) -> None:
        """Check all rows of a block whose first is number `first`, and keep those that are interactions.

        Rows left out are counted by reason; halving finds a row that cannot be read.
        """
        todo = [(first, self._without_missing(first, block))]
        while todo:
            first, block = todo.pop()
            if not block.num_rows:
                continue
            try:
                self._add(first, block)
            except InputError as error:
                if self.options.errors == "refuse":
                    raise
                half = block.num_rows // 2
                if half:
                    todo += [(first + half, block.slice(half)), (first, block.slice(0, half))]
                    continue
                self.read += 1
                column = str(error).partition(", column ")[2].partition(":")[0] or "?"
                self.dropped[column] = self.dropped.get(column, 0) + 1

    def _without_missing(self, first: int, block: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with user and item, and count the others. Raises `InputError` if none may lack them."""
        if self.options.missing == "keep":
            return block
        bad = np.zeros(block.num_rows, bool)
        for role in ("user", "item"):
            name = self.columns[role]
            here = missing(block.column(name))
            if self.options.missing == "refuse" and self.options.errors == "refuse":
                rule = (
                    f"that is no {role}; data_options.missing=drop leaves such rows out, and keep takes them as one "
                    f"{role} called so"
                )
                Column(self.table.name, first, name, block.column(name)).refuse(here, rule)
            bad |= here
        self.read += int(bad.sum())
        self.without += int(bad.sum())
        return block.filter(pa.array(~bad)) if bad.any() else block

    def _add(self, first: int, block: pa.RecordBatch) -> None:
        """Check all rows of a block and keep those that are interactions."""
        columns = {role: Column(self.table.name, first, name, block[name]) for role, name in self.columns.items()}
        found: dict[str, Any] = {role: ids(columns[role]) for role in _IDS if role in columns}
        if "split" in columns:
            found["split"] = pa.array(labels(columns["split"], PARTS, A_PART))
        if "block" in columns:
            found["block"] = pa.array(blocks(columns["block"]))
        keep = np.ones(block.num_rows, bool)
        if "kind" in columns:
            kind = self._kinds(columns["kind"]).astype(np.int8)
            keep = ~np.isin(kind, [self.known.kinds.index(name) for name in self.known.skipped])
            found["kind"] = pa.array(kind)
        rating = None
        if "rating" in columns:
            rating = numbers(columns["rating"], _STARS if self.known.stars else _RATING, self.options.decimal)
            if self.known.stars:
                columns["rating"].refuse((rating < 0) | (rating > 5), _STARS)
        if "time" in columns:
            when = self.times.add(columns["time"])
            if "clock" in columns:  # dates are in seconds, other days are an order
                unit = 1000 if self.times.dates else clocks.DAY
                when = Part(when.values * unit + clocks.of_day(columns["clock"]), 3)
            found["time"] = pa.array(when.values)
            self.digits.append(when.digits)
        self.read += block.num_rows
        if rating is not None:
            keep &= self._liked(rating)
        found |= {f"text {name}": block[name] for name in self.texts}
        for name, values in found.items():
            self.kept.setdefault(name, []).append(values if keep.all() else values.filter(pa.array(keep)))

    def _kinds(self, column: Column) -> npt.NDArray[np.uint8]:
        names = self.known.kinds
        numbers_of = {word.lower(): n for n, name in enumerate(names) if name for word in (name, str(n))}
        said = ", ".join(f"{number} ({name})" for number, name in enumerate(names) if name)
        return labels(column, numbers_of, f"a kind is one of {said}")

    def _liked(self, rating: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Count ratings, and return which are high enough, bool [n]."""
        self.low, self.high = min(self.low, rating.min()), max(self.high, rating.max())
        self.total += float(rating.sum())
        liked: npt.NDArray[np.bool_] = rating >= (-np.inf if self.options.positive is None else self.options.positive)
        self.below += int((~liked).sum())
        return liked

    def rows(self) -> Rows:
        """Return all that was kept, and release it. Raises `InputError` where that is nothing."""
        left_out = self.without + sum(self.dropped.values())
        if not sum(map(len, self.kept.get("user", ()))):
            what = "it has no rows"
            if left_out:
                what = f"no row is left: {'; '.join(self.notes())}"
            elif self.below:
                what = f"no rating is at least {self.options.positive:g} (data_options.positive)"
            raise InputError(f"{self.table.name}: {what}")

        def whole(role: str) -> Any:
            return pa.chunked_array(self.kept.pop(role)).to_numpy() if role in self.kept else None

        nobody = (None, pa.array([], pa.string()))
        named = {role: _joined(self.kept.pop(role)) if role in self.kept else nobody for role in _IDS}
        (user, users), (item, items) = named["user"], named["item"]
        assert user is not None and item is not None  # noqa: PT018 - no table lacks either
        time, per_second = np.arange(len(user)), None
        if "time" in self.kept:
            chunks = self.kept.pop("time")
            all_of = joined([Part(c.to_numpy(), digits) for c, digits in zip(chunks, self.digits, strict=True)])
            time, per_second = all_of.values, self.times.per_second(self.table.name, self.columns["time"])
            per_second = None if per_second is None else per_second * 10**all_of.digits
        rated = self.read - left_out
        return Rows(
            *(user, users, item, items, time),
            per_second=per_second,
            session=named["session"][0],
            sessions=named["session"][1],
            domain=named["domain"][0],
            domains=named["domain"][1].to_pylist(),
            part=whole("split"),
            block=whole("block"),
            kind=whole("kind"),
            read=self.read,
            below=self.below,
            ratings=(float(self.low), self.total / rated, float(self.high)) if "rating" in self.columns else (),
            texts={name: pa.chunked_array(self.kept[f"text {name}"]) for name in self.texts},
            notes=self.notes(),
        )

    def notes(self) -> list[str]:
        """Return what is told of rows that were left out, and of the table."""
        out = []
        if self.without:
            out.append(f"{self.without:,} of {self.read:,} rows have no user or no item (data_options.missing)")
        for column, count in self.dropped.items():
            out.append(f"{count:,} of {self.read:,} rows cannot be read: column {column} (data_options.errors=drop)")
        return [*out, *self.table.notes]


def _joined(chunks: list[pa.DictionaryArray]) -> tuple[Codes, pa.Array]:
    """Return a column's numbers int32 [n] and ids by first appearance; empties the list."""
    unified = pa.chunked_array(chunks).unify_dictionaries()
    chunks.clear()
    names = unified.chunk(0).dictionary.cast(pa.string()).dictionary_encode()  # every id once
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in unified.chunks])
    twice = len(names.dictionary) < len(names)
    return by_appearance(names.indices.to_numpy()[codes] if twice else codes, names.dictionary)


def by_appearance(codes: Codes, names: pa.Array) -> tuple[Codes, pa.Array]:
    """Return numbers and names by first appearance, without unused names."""
    first = np.full(len(names), len(codes), np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    order = np.argsort(first, kind="stable")[: int((first < len(codes)).sum())]
    number = np.zeros(len(names), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number[codes], names.take(pa.array(order))


def texts_of(names: pa.Array) -> npt.NDArray[np.str_]:
    """Return ids as numpy has them."""
    return np.array(names.to_pylist(), dtype=np.str_)
