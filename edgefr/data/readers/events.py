"""This module reads public tables of events, one row for each: who, what, when and, where it is said, of which kind.

Owns: reading such a table in blocks, whatever its columns are called. Does not own: sources and kinds (the data sets'
modules).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Catalogue, Dataset, Kinds, assemble
from edgefr.data.readers.archive import Archive, Numbering, Wanted, check_ids, check_times, read_table, refuse

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]

_LONGEST_HEADER = 1 << 16  # bytes
_LATEST = 253_402_300_799_000  # 9999 in ms


@dataclass(frozen=True)
class Time:
    """This is a column of times:

    its `type`, and `read(archive, member, line, column)`, which checks and returns times since 1970.

    They are in units of which `per_second` make a second.
    """

    type: Literal["int", "str"]
    read: Callable[[Archive, str, int, pa.Array], Ints]
    per_second: int = 1


def _milliseconds(archive: Archive, member: str, line: int, column: pa.Array) -> Ints:
    times = column.to_numpy()
    refuse(archive, member, line, (times < 0) | (times > _LATEST), column, "a time must be unix milliseconds")
    return times.astype(np.int64)


def written(pattern: str, example: str) -> Time:
    """Return how times are read as text, by a pattern of strptime; they count as UTC."""

    def seconds(archive: Archive, member: str, line: int, column: pa.Array) -> Ints:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.strptime(column, format=pattern, unit="s", error_is_null=True)
        missing = found.is_null().to_numpy(zero_copy_only=False)
        refuse(archive, member, line, missing, column, f"a time must be written as {example}")
        seconds = found.cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
        refuse(archive, member, line, seconds < 0, column, f"a time must be written as {example}, from 1970 on")
        return seconds

    return Time("str", seconds)


SECONDS = Time("int", check_times)
MILLISECONDS = Time("int", _milliseconds, 1000)


@dataclass(frozen=True)
class Layout:
    """Names of a table's columns, which may follow a prefix and a dot in the header.

    `kinds` are the kinds' names, by number or as the file has them (`kinds_written`); "" is no kind. `skipped` kinds
    are not kept while reading.
    """

    user: str
    item: str
    time: str
    kind: str
    clock: Time
    kinds: tuple[str, ...]
    kinds_written: bool = False
    dropped: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    separator: str = ","

    @property
    def kind_type(self) -> Literal["int", "str"]:
        """Return what the column of kinds holds."""
        return "str" if self.kinds_written else "int"


def read_events(archive: Archive, member: str, name: str, domain: str, layout: Layout) -> Dataset:
    """Read a table of events block by block; ids are numbered by first appearance.

    Raises `InputError` naming file and row for what is not such a table.
    """
    columns = _columns(archive, member, layout)
    user_name, item_name, time_name, kind_name = columns
    wanted: Wanted = {user_name: "int", item_name: "int", time_name: layout.clock.type, kind_name: layout.kind_type}
    skipped = [layout.kinds.index(kind) for kind in layout.skipped]
    users, items, parts = Numbering(), Numbering(), list[tuple[np.ndarray, ...]]()
    for line, block in read_table(archive, member, wanted, layout.separator):
        user, item, time, kind = (block.column(column) for column in columns)
        check_ids(archive, member, line, user, layout.user)
        check_ids(archive, member, line, item, layout.item)
        moments = layout.clock.read(archive, member, line, time)
        number = _kinds(archive, member, line, kind, layout)
        if skipped:
            import pyarrow as pa

            kept = ~np.isin(number, skipped)
            user, item = (column.filter(pa.array(kept)) for column in (user, item))
            moments, number = moments[kept], number[kept]
        parts.append((users.add(user), items.add(item), moments, number))
    if not any(len(part[0]) for part in parts):
        raise archive.fault(member, None, "it has no rows")
    user_rows, item_rows, time_rows, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
    kinds = Kinds(numbers, layout.kinds, layout.dropped)
    rows, source = (user_rows, item_rows, time_rows), archive.source([member])
    made = (name, users.ids(), untitled(items), rows, (domain,), True, source)
    return assemble(*made, kinds=kinds, per_second=layout.clock.per_second)


def untitled(items: Numbering) -> Catalogue:
    nothing = [""] * len(items.numbers)
    return Catalogue(items.ids(), nothing, nothing, np.zeros(len(nothing), np.uint8))


def _columns(archive: Archive, member: str, layout: Layout) -> list[str]:
    """The names of user, item, time and kind as the header has them."""
    with archive.open(member) as file, archive.faults(member):
        first = file.readline(_LONGEST_HEADER).decode("utf-8-sig")
    header = [name.strip('"') for name in first.rstrip("\r\n").split(layout.separator)]
    out = []
    for name in (layout.user, layout.item, layout.time, layout.kind):
        found = [column for column in header if column.rpartition(".")[2] == name]
        if len(found) != 1:
            raise archive.fault(member, 1, f"the header must have {name} once")
        out.append(found[0])
    return out


def _kinds(archive: Archive, member: str, line: int, column: pa.Array, layout: Layout) -> npt.NDArray[np.int8]:
    """Return the kinds' numbers."""
    allowed = ", ".join(
        kind if layout.kinds_written else f"{number} ({kind})" for number, kind in enumerate(layout.kinds) if kind
    )
    if layout.kinds_written:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(column, value_set=pa.array(layout.kinds)).fill_null(-1).to_numpy(zero_copy_only=False)
    else:
        found = column.to_numpy()
    named = np.array([bool(kind) for kind in layout.kinds])
    inside = (found >= 0) & (found < len(named))
    bad = ~(inside & named[np.where(inside, found, 0)])
    refuse(archive, member, line, bad, column, f"{layout.kind} must be one of {allowed}")
    return found.astype(np.int8)
