"""Rows of a table become columns of numbers: users, items and times, and what else the table has.

Owns: reading the interactions, every row checked before any is left out. Does not own: which rows a data set keeps
(`made`), texts (`texts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgefr.data.files import clock_columns as clocks
from edgefr.data.files.checked_values import blocks, ids, missing, numbers, parts
from edgefr.data.files.options import FileOptions
from edgefr.data.files.table import Opened
from edgefr.data.files.times import Part, Times, joined
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Codes = npt.NDArray[np.int32]
_IDS = ("user", "item", "session", "domain")
_RATING = "a rating is a finite number; if the column is none, set data_options.columns.rating=-"


@dataclass
class Rows:
    """These are a table's interactions in its order: numbers of ids [n], and the ids that they number.

    `time` int64 [n] has `per_second` units a second, or is an order (None). `session`, `domain`, `part` and `block` are
    None without such a column. `below` of `read` rows were rated too low. `ratings`: lowest, mean and highest, or
    nothing. `texts`: columns beside the rows. `notes`: about rows that were left out.
    """

    user: Codes
    users: pa.Array
    item: Codes
    items: pa.Array
    time: npt.NDArray[np.int64]
    per_second: int | None
    session: Codes | None
    domain: Codes | None
    domains: list[str]
    part: npt.NDArray[np.uint8] | None
    block: npt.NDArray[np.int16] | None
    read: int
    below: int
    ratings: tuple[float, ...]
    texts: dict[str, pa.ChunkedArray]
    notes: list[str] = field(default_factory=list)


def read_rows(table: Opened, columns: dict[str, str], options: FileOptions, texts: Sequence[str]) -> Rows:
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
    gathered = _Gathered(table, columns, options, texts)
    for first, block in table.read(list(dict.fromkeys([*columns.values(), *texts]))):
        gathered.add(first, block)
    return gathered.rows()


class _Gathered:
    """Rows of a table are added block by block."""

    def __init__(self, table: Opened, columns: dict[str, str], options: FileOptions, texts: Sequence[str]):
        self.table, self.columns, self.positive = table, columns, options.positive
        self.times, self.decimal = Times(options.time), options.decimal
        self.missing, self.errors = options.missing, options.errors
        self.read = self.below = self.without = 0
        self.dropped: dict[str, int] = {}
        self.low, self.total, self.high = np.inf, 0.0, -np.inf
        self.ids: dict[str, list[pa.DictionaryArray]] = {role: [] for role in _IDS if role in columns}
        self.when: list[Part] = []
        self.parts: list[npt.NDArray[np.uint8]] = []
        self.blocks: list[npt.NDArray[np.int16]] = []
        self.texts: dict[str, list[pa.Array]] = {name: [] for name in texts}

    def add(self, first: int, block: pa.RecordBatch) -> None:
        """Check all rows of a block whose first is number `first`, and keep those that are interactions.

        Rows left out are counted by reason; halving finds a row that cannot be read.
        """
        if not block.num_rows:
            return
        todo = [(first, self._without_missing(first, block))]
        while todo:
            first, block = todo.pop()
            if not block.num_rows:
                continue
            try:
                self._add(first, block)
            except InputError as error:
                if self.errors == "refuse":
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
        import pyarrow as pa

        if self.missing == "keep":
            return block
        bad = np.zeros(block.num_rows, bool)
        for role in ("user", "item"):
            here = missing(block.column(self.columns[role]))
            if here.any() and self.missing == "refuse" and self.errors == "refuse":
                at = int(here.argmax())
                value = block.column(self.columns[role])[at].as_py()
                rule = (
                    f"that is no {role}; data_options.missing=drop leaves such rows out, and keep takes them as one "
                    f"{role} called so"
                )
                raise self.table.fault(first + at, self.columns[role], value, rule)
            bad |= here
        if bad.any():
            self.read += int(bad.sum())
            self.without += int(bad.sum())
            block = block.filter(pa.array(~bad))
        return block

    def _add(self, first: int, block: pa.RecordBatch) -> None:
        """Check all rows of a block and keep those that are interactions."""
        import pyarrow as pa

        def of(role: str) -> tuple[Opened, int, str, pa.Array]:
            return self.table, first, self.columns[role], block.column(self.columns[role])

        found: dict[str, pa.Array] = {role: ids(*of(role)) for role in self.ids}
        if "split" in self.columns:
            found["split"] = pa.array(parts(*of("split")))
        if "block" in self.columns:
            found["block"] = pa.array(blocks(*of("block")))
        texts = {name: block.column(name) for name in self.texts}
        rating = numbers(*of("rating"), _RATING, self.decimal) if "rating" in self.columns else None
        if "time" in self.columns:
            when = self.times.add(*of("time"))
            if "clock" in self.columns:  # dates are in seconds, other days are an order
                unit = 1000 if self.times.dates else clocks.DAY
                when = Part(when.values * unit + clocks.of_day(*of("clock")), 3)
            found["time"] = pa.array(when.values)
        self.read += block.num_rows
        if rating is not None:
            keep = self._liked(rating)
            found, texts = ({name: values.filter(keep) for name, values in some.items()} for some in (found, texts))
        if "time" in found:
            self.when.append(Part(found["time"].to_numpy(), when.digits))
        self._keep(found, texts)

    def _liked(self, rating: npt.NDArray[np.float64]) -> pa.BooleanArray:
        """Count ratings, and return which are high enough."""
        import pyarrow as pa

        self.low, self.high = min(self.low, rating.min(initial=np.inf)), max(self.high, rating.max(initial=-np.inf))
        self.total += float(rating.sum())
        liked = pa.array(rating >= (-np.inf if self.positive is None else self.positive))
        self.below += len(rating) - liked.true_count
        return liked

    def _keep(self, found: dict[str, pa.Array], texts: dict[str, pa.Array]) -> None:
        for role, values in self.ids.items():
            values.append(found[role])
        if "split" in found:
            self.parts.append(found["split"].to_numpy())
        if "block" in found:
            self.blocks.append(found["block"].to_numpy())
        for name, column in self.texts.items():
            column.append(texts[name])

    def rows(self) -> Rows:
        """Return all that was kept, and release it. Raises `InputError` where that is nothing."""
        import pyarrow as pa

        left_out = self.without + sum(self.dropped.values())
        if self.read == self.below + left_out:
            what = (
                f"no rating is at least {self.positive:g} (data_options.positive)" if self.below else "it has no rows"
            )
            what = f"no row is left: {'; '.join(self.notes())}" if left_out else what
            raise InputError(f"{self.table.name}: {what}")
        nobody = (None, pa.array([], pa.string()))
        user, item, session, domain = (_joined(self.ids[role]) if role in self.ids else nobody for role in _IDS)
        time, per_second = np.arange(self.read - self.below - left_out), None
        if self.when:
            whole = joined(self.when)
            self.when.clear()
            time, per_second = whole.values, self.times.per_second(self.table, self.columns["time"])
            per_second = None if per_second is None else per_second * 10**whole.digits
        assert user[0] is not None and item[0] is not None  # noqa: PT018 - no table lacks either
        return Rows(
            *(user[0], user[1], item[0], item[1], time),
            per_second=per_second,
            session=session[0],
            domain=domain[0],
            domains=domain[1].to_pylist(),
            part=np.concatenate(self.parts) if self.parts else None,
            block=np.concatenate(self.blocks) if self.blocks else None,
            read=self.read,
            below=self.below,
            ratings=self._ratings(self.read - left_out),
            texts={name: pa.chunked_array(chunks) for name, chunks in self.texts.items()},
            notes=self.notes(),
        )

    def _ratings(self, rated: int) -> tuple[float, ...]:
        return (float(self.low), self.total / rated, float(self.high)) if "rating" in self.columns else ()

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
    import pyarrow as pa

    unified = pa.chunked_array(chunks).unify_dictionaries()
    chunks.clear()
    names = unified.chunk(0).dictionary.cast(pa.string()).dictionary_encode()  # every id once
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in unified.chunks])
    twice = len(names.dictionary) < len(names)
    return by_appearance(names.indices.to_numpy()[codes] if twice else codes, names.dictionary)


def by_appearance(codes: Codes, names: pa.Array) -> tuple[Codes, pa.Array]:
    """Return numbers and names by first appearance, without unused names."""
    import pyarrow as pa

    first = np.full(len(names), len(codes), np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    order = np.argsort(first, kind="stable")[: int((first < len(codes)).sum())]
    number = np.zeros(len(names), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number[codes], names.take(pa.array(order))
