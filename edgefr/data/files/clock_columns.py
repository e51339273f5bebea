"""A day may stand in one column and the time of day in another: this finds such pairs, and reads the time of day.

Owns: which columns are whole days and which are times of day. Does not own: dates (`times`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt

from edgefr.data.files import names
from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.checked_values import decoded
from edgefr.data.files.options import Columns
from edgefr.data.files.table import Column, OpenTable, is_text
from privacy.errors import InputError

DAY = 86_400_000
"""What a day has of the units in which `of_day` tells the time: milliseconds."""

_DAY = (
    r"^([0-9]{4}[/-][0-9]{1,2}[/-][0-9]{1,2}|[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{4}"
    r"|(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01]))$"
)
_CLOCK = r"^([0-9]{1,2}):([0-9]{2})(:([0-9]{2})(\.[0-9]+)?)?$"
_RULE = "a time of day is HH:MM, HH:MM:SS, an hour, or a number as 1730; data_options.columns.clock=- leaves it alone"


def chosen(table: OpenTable, columns: dict[str, str], told: Columns) -> dict[str, str]:
    """Return the columns by role, with the time that orders rows best: a moment, else a day and a time of day.

    `told` are names that options give, which are kept. Only the first rows are read.
    """
    if told.time is not None or "time" not in columns:
        return columns
    taken = {name for role, name in columns.items() if role not in ("time", "clock")}
    times = [name for name in names.usual("time", table.columns) if name not in taken]
    clocks = [name for name in names.usual("clock", table.columns) if name not in taken]
    others = times
    if told.clock is not None:
        clocks, others = ([columns["clock"]] if "clock" in columns else []), []
    if len(times) + len(clocks) < 2:
        return columns
    wanted = list(dict.fromkeys([*times, *clocks]))
    with closing(table.read(wanted)) as rows:
        _, first = next(rows, (0, None))
    if first is None or not first.num_rows:
        return columns
    head = {name: first.column(name).slice(0, 1000) for name in wanted}
    day = next((name for name in times if _matches(head[name], _DAY)), None)
    clock = next((name for name in [*clocks, *others] if name != day and is_of_day(name, head[name])), None)
    moment = next((name for name in times if name not in (day, clock)), None)
    if moment is not None or day is None:
        return columns if moment is None else {**columns, "time": moment}
    return {**columns, "time": day} if clock is None else {**columns, "time": day, "clock": clock}


def _matches(values: pa.Array, pattern: str) -> bool:
    """Say whether all values are there and written so."""
    try:
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        plain = pc.utf8_trim_whitespace(values.cast(pa.string()))
        return bool(len(values)) and pc.all(pc.match_substring_regex(plain, pattern)).as_py() is True
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False


def is_of_day(name: str, values: pa.Array) -> bool:
    """Say whether values are times of day.

    >>> import pyarrow
    >>> is_of_day("time", pyarrow.array(["9:05", "23:59"])), is_of_day("time", pyarrow.array([905, 4000]))
    (True, False)
    """
    try:
        of_day(Column("", 1, name, values))
    except InputError:
        return False
    return names.plain(name) in names.USUAL["clock"] or _matches(values, _CLOCK)


def of_day(column: Column) -> npt.NDArray[np.int64]:
    """Return times of day in milliseconds, int64 [n]. Raises `InputError` for what is none."""
    column = decoded(column, _RULE)
    values = column.values
    if pa.types.is_time(values.type):
        values = values.cast(pa.time64("ns")).cast(pa.string())
    if pa.types.is_nested(values.type) or pa.types.is_temporal(values.type) or pa.types.is_boolean(values.type):
        raise column.fault(0, _RULE)
    if is_text(values) and len(values) and ":" in str(values[0].as_py()):
        column.refuse(pc.invert(pc.match_substring_regex(values, _CLOCK)), _RULE)
        padded = pc.replace_substring_regex(values, r"^([0-9]):", r"0\1:")
        padded = pc.replace_substring_regex(padded, r"^([0-9]{2}:[0-9]{2})$", r"\1:00")
        padded = pc.replace_substring_regex(padded, r"(\.[0-9]{1,9})[0-9]*$", r"\1")
        moments = column.of(pc.binary_join_element_wise("1970-01-01", padded, " "))
        read = moments.converted(lambda part: part.cast(pa.timestamp("ns")), _RULE)
        since: npt.NDArray[np.int64] = read.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1_000_000
        return since
    found = column.converted(lambda part: part.cast(pa.int64()), _RULE).to_numpy(zero_copy_only=False)
    name = names.plain(column.name)  # it tells the unit, else they are HHMM or hours
    if name in ("timeframe", "milliseconds"):
        column.refuse(found < 0, _RULE)
        return found
    hours, minutes = (found, 0 * found) if "min" not in name and "hhmm" not in name else (found // 100, found % 100)
    column.refuse((found < 0) | (hours > 23) | (minutes > 59), _RULE)
    return 3_600_000 * hours + 60_000 * minutes


def told(columns: dict[str, str], there: Sequence[str]) -> list[str]:
    """Return a note on how the time was chosen, or nothing where there was no choice."""
    if "time" not in columns:
        return []
    taken = columns["time"] if "clock" not in columns else f"{columns['time']} with {columns['clock']}"
    others = [name for name in names.usual("time", there) if name not in columns.values()]
    if not others and "clock" not in columns:
        return []
    hint = f"{', '.join(others)} could be it too (data_options.columns.time=NAME)" if others else ""
    hint = hint or "data_options.columns.clock=- leaves the time of day alone"
    return [f"the time is column {taken}; {hint}"]
