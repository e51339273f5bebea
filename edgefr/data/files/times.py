"""Times are written in many ways; all become numbers since 1970 of a known unit, or an order where they are no clock.

Owns: units, dates written as text, and saying in which row a time makes no sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.opened import Opened
from edgefr.data.files.options import UNITS
from edgefr.data.files.values import converted, decoded, trimmed

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]

_LATEST = 253_402_300_799  # the end of 9999, in seconds
_FIRST_CLOCK = 100_000_000  # seconds, in March 1973: numbers that end before are positions or days
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"


@dataclass
class Times:
    """A column of times is read here block by block. `how` is the option `time`.

    >>> Times("auto").unit_of(881250949), Times("auto").unit_of(1486479600000), Times("auto").unit_of(17)
    ('s', 'ms', 'order')
    """

    how: str
    dates: bool | None = None
    low: tuple[float, int] = (np.inf, 0)
    high: tuple[float, int] = (-np.inf, 0)

    def add(self, table: Opened, row: int, column: str, values: pa.Array) -> Ints:
        """Return the times of a block, in their own unit. Raises `InputError` for what is no time."""
        rule = self._rule()
        values = trimmed(decoded(table, row, column, values, rule))
        if values.null_count:
            table.refuse(row, column, values.is_null().to_numpy(zero_copy_only=False), values, rule)
        if self.dates is None:
            self.dates = self._are_dates(values)
            if self.dates and self.how in UNITS:
                raise table.fault(row, column, values[0].as_py(), f"it is no number of {self.how} (data_options.time)")
        found = self._of_dates(table, row, column, values) if self.dates else _whole(table, row, column, values, rule)
        most = _LATEST * (1 if self.dates else UNITS.get(self.how, UNITS["ns"]))
        table.refuse(row, column, (found < 0) | (found > most), values, "a time is from 1970 to 9999")
        if len(found):
            least, greatest = int(found.argmin()), int(found.argmax())
            self.low = min(self.low, (float(found[least]), row + least))
            self.high = max(self.high, (float(found[greatest]), row + greatest))
        return found

    def per_second(self, table: Opened, column: str) -> int | None:
        """Return how many units of the times make a second; None where they are no clock.

        Raises `InputError` where units are mixed.
        """
        unit = "s" if self.dates else self.unit_of(self.high[0])
        if unit == "order" or self.how == "order":
            return None
        if self.how == "auto" and not self.dates and self.low[0] // UNITS[unit] < _FIRST_CLOCK:
            raise table.fault(
                self.low[1],
                column,
                int(self.low[0]),
                f"others are {unit} since 1970 (row {self.high[1]}: {int(self.high[0])}): mend it, or say the unit by "
                "data_options.time",
            )
        return UNITS[unit]

    def unit_of(self, greatest: float) -> str:
        """Return the unit of numbers up to `greatest`: that which puts it between 1973 and 5138, or "order"."""
        if self.how in UNITS:
            return self.how
        if greatest < _FIRST_CLOCK:
            return "order"
        return next((unit for unit, size in UNITS.items() if greatest < 1e11 * size), "ns")

    def _rule(self) -> str:
        if "%" in self.how:
            return f"a time is written as {self.how} (data_options.time)"
        return "a time is a number or an ISO date; name its pattern by data_options.time, as %d/%m/%Y"

    def _are_dates(self, values: pa.Array) -> bool:
        """Say whether times are dates and not numbers; the first of them says it for all."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_temporal(values.type) or "%" in self.how:
            return True
        text = "string" in str(values.type) and len(values)
        return bool(text and not pc.match_substring_regex(values.slice(0, 1), _NUMBER)[0].as_py())

    def _of_dates(self, table: Opened, row: int, column: str, values: pa.Array) -> Ints:
        """Return unix seconds; what names no time zone counts as UTC."""
        import pyarrow as pa

        if pa.types.is_temporal(values.type):
            return converted(table, row, column, values, _stamped, self._rule()).to_numpy(zero_copy_only=False)
        if "string" not in str(values.type):
            values = values.cast(pa.string())
        read = self._by_pattern if "%" in self.how else _iso
        return converted(table, row, column, values, read, self._rule()).to_numpy(zero_copy_only=False)

    def _by_pattern(self, values: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.strptime(values, format=self.how, unit="s", error_is_null=False).cast(pa.int64())


def _whole(table: Opened, row: int, column: str, values: pa.Array, rule: str) -> Ints:
    """Return numbers as whole ones, exactly where they are whole."""
    import pyarrow as pa

    def read(part: Any) -> Any:
        try:
            return part.cast(pa.int64())
        except pa.ArrowInvalid:
            return part.cast(pa.float64(), safe=False)

    if pa.types.is_boolean(values.type) or pa.types.is_nested(values.type):
        raise table.fault(row, column, values[0].as_py(), f"{rule}, and this column is of {values.type}")
    if pa.types.is_integer(values.type):
        found = converted(table, row, column, values, lambda part: part.cast(pa.int64()), rule)
        return found.to_numpy(zero_copy_only=False)
    numbers = converted(table, row, column, values, read, rule).to_numpy(zero_copy_only=False)
    if numbers.dtype == np.int64:
        return numbers
    table.refuse(row, column, ~(np.abs(numbers) < 2.0**62), values, rule)
    return np.floor(numbers).astype(np.int64)


def _stamped(values: Any) -> Any:
    """Return dates and timestamps as unix seconds, downwards."""
    import pyarrow as pa

    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        raise pa.ArrowInvalid("no date")
    if not pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("s")).cast(pa.int64())
    size, ticks = UNITS[values.type.unit], values.cast(pa.int64())
    return ticks if size == 1 else pa.array(ticks.to_numpy() // size)


def _iso(values: Any) -> Any:
    """Return ISO dates with or without a time and a zone as unix seconds, downwards."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return values.cast(pa.timestamp("s")).cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    values = pc.replace_substring_regex(values, r" ?(UTC|GMT)$", "Z")
    values = pc.replace_substring_regex(values, r"([0-9]:[0-9]{2}:[0-9]{2})[.,][0-9]+", r"\1")
    values = pc.replace_substring_regex(values, r" ([+-][0-9]{2}:?[0-9]{2})$", r"\1")
    zoned = pc.match_substring_regex(values, r"[0-9](Z|[+-][0-9]{2}:?[0-9]{2})$")
    if pc.all(zoned).as_py():
        return values.cast(pa.timestamp("s", "UTC")).cast(pa.int64())
    if not pc.any(zoned).as_py():
        return values.cast(pa.timestamp("s")).cast(pa.int64())
    plain = pc.if_else(zoned, pa.scalar(None, pa.string()), values).cast(pa.timestamp("s")).cast(pa.int64())
    with_zone = pc.if_else(zoned, values, pa.scalar(None, pa.string())).cast(pa.timestamp("s", "UTC")).cast(pa.int64())
    return pc.coalesce(plain, with_zone)
