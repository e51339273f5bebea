"""Times are written in many ways; all become numbers since 1970 of a known unit, or an order where they are no clock.

Owns: units, dates written as text, and saying in which row a time makes no sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.checked_values import decoded
from edgefr.data.files.options import UNITS
from edgefr.data.files.table import Column, fault, is_text

Ints = npt.NDArray[np.int64]

_LATEST = 253_402_300_799  # the end of 9999, in seconds
_FIRST_CLOCK = 100_000_000  # seconds, in March 1973: numbers that end before are positions or days
_YEARS = "a time is from 1970 to 9999"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class Part:
    """These are the times of a block: whole numbers of 10 ** -`digits` of the column's own unit."""

    values: Ints
    digits: int = 0


def joined(parts: Sequence[Part]) -> Part:
    """Return all parts as one, in the finest unit of any; the rows' order is kept.

    >>> joined([Part(np.array([7])), Part(np.array([75]), 1)])
    Part(values=array([70, 75]), digits=1)
    """
    digits = max(part.digits for part in parts)
    while any(abs(int(part.values.max(initial=0))) * 10 ** max(digits - part.digits, 0) >= 2**63 for part in parts):
        digits -= 1  # no finer unit holds all of them
    parts = [
        part if part.digits <= digits else Part(part.values // 10 ** (part.digits - digits), digits) for part in parts
    ]
    return Part(np.concatenate([part.values * 10 ** (digits - part.digits) for part in parts]), digits)


@dataclass
class Times:
    """This reads a column of times block by block; `how` is the option `time`, `earliest` the first allowed, in s."""

    how: str
    earliest: int = 0
    dates: bool | None = None
    low: tuple[float, int] = (np.inf, 0)
    high: tuple[float, int] = (-np.inf, 0)

    def add(self, column: Column) -> Part:
        """Return the times of a block, as exactly as the file has them. Raises `InputError` for what is no time."""
        rule = "a time is a number or an ISO date; name its pattern by data_options.time, as %d/%m/%Y"
        if "%" in self.how:
            rule = f"a time is written as {self.how} (data_options.time)"
        column = decoded(column, rule)
        if self.dates is None:
            self.dates = self._are_dates(column.values)
            if self.dates and self.how in UNITS:
                raise column.fault(0, f"it is no number of {self.how} (data_options.time)")
        found = self._dates(column, rule) if self.dates else _numbers(column, rule)
        size, unit = 10**found.digits, 1 if self.dates else UNITS.get(self.how, UNITS["ns"])
        most = min(_LATEST * unit * size, np.iinfo(np.int64).max)
        column.refuse((found.values < self.earliest * unit * size) | (found.values > most), _YEARS)
        if len(found.values):
            least, greatest = int(found.values.argmin()), int(found.values.argmax())
            self.low = min(self.low, (found.values[least] / size, column.row + least))
            self.high = max(self.high, (found.values[greatest] / size, column.row + greatest))
        return found

    def per_second(self, table: str, column: str) -> int | None:
        """Return the column's units per second, or None for an order. Raises `InputError` where units are mixed."""
        unit = "s" if self.dates else self.unit_of(self.high[0])
        if unit == "order" or self.how == "order":
            return None
        if self.how == "auto" and not self.dates and self.low[0] // UNITS[unit] < _FIRST_CLOCK:
            rule = (
                f"others are {unit} since 1970 (row {self.high[1]}: {int(self.high[0])}): mend it, or say the unit by "
                "data_options.time"
            )
            raise fault(table, self.low[1], column, int(self.low[0]), rule)
        return UNITS[unit]

    def unit_of(self, greatest: float) -> str:
        """Return the unit of numbers up to `greatest`: that which puts it between 1973 and 5138, or "order"."""
        if self.how in UNITS:
            return self.how
        if greatest < _FIRST_CLOCK:
            return "order"
        return next((unit for unit, size in UNITS.items() if greatest < 1e11 * size), "ns")

    def _are_dates(self, values: pa.Array) -> bool:
        """Say whether times are dates and not numbers, as most of the first block are."""
        if pa.types.is_temporal(values.type) or "%" in self.how:
            return True
        if not is_text(values) or not len(values):
            return False
        return bool(2 * pc.sum(pc.match_substring_regex(values, _NUMBER)).as_py() < len(values))

    def _dates(self, column: Column, rule: str) -> Part:
        """Return unix seconds and their fractions; what names no time zone counts as UTC."""
        values = column.values
        if pa.types.is_temporal(values.type):
            stamps = column.converted(_stamps, rule)
        else:
            text = column.of(values if is_text(values) else values.cast(pa.string()))
            stamps = text.converted(self._by_pattern if "%" in self.how else _iso, rule)
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[stamps.type.unit]
        return _shortest(stamps.cast(pa.int64()).to_numpy(zero_copy_only=False), digits)

    def _by_pattern(self, values: Any) -> Any:
        return pc.strptime(values, format=self.how, unit="s", error_is_null=False)


def _numbers(column: Column, rule: str) -> Part:
    """Return numbers exactly as written, or for floats by the fewest decimals that restore them."""
    values = column.values
    if pa.types.is_boolean(values.type) or pa.types.is_nested(values.type):
        raise column.fault(0, f"{rule}, and this column is of {values.type}")
    if pa.types.is_integer(values.type):
        return Part(column.converted(lambda part: part.cast(pa.int64()), rule).to_numpy(zero_copy_only=False))
    try:
        return Part(values.cast(pa.int64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        pass
    exact = _decimals(values.cast(pa.string()) if pa.types.is_floating(values.type) else values)
    if exact is not None:
        return exact
    read = column.converted(lambda part: part.cast(pa.float64(), safe=False), rule)
    found: npt.NDArray[np.float64] = read.to_numpy(zero_copy_only=False)
    column.refuse(~(np.abs(found) < 2.0**62), rule)
    for digits in range(10):
        scaled = np.rint(found * 10.0**digits)
        if (scaled / 10.0**digits == found).all() or np.abs(scaled).max(initial=0) > 2.0**50:
            break
    return Part(scaled.astype(np.int64), digits)


def _decimals(values: pa.Array) -> Part | None:
    for digits in (9, 18, 15, 12, 6, 3):
        try:
            exact = values.cast(pa.decimal128(38, digits))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        halves = np.frombuffer(exact.buffers()[1], np.int64)[2 * exact.offset :].reshape(-1, 2)[: len(exact)]
        if (halves[:, 1] == halves[:, 0] >> 63).all():  # 128 bits that 64 hold
            return _shortest(halves[:, 0].copy(), digits)
    return None


def _shortest(values: Ints, digits: int) -> Part:
    """Return the same times with no more digits than they need."""
    while digits and not (values % 10).any():
        values, digits = values // 10, digits - 1
    return Part(values, digits)


def _stamps(values: Any) -> Any:
    """Return dates and timestamps as timestamps of their own unit."""
    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        raise pa.ArrowInvalid("no date")
    return values if pa.types.is_timestamp(values.type) else values.cast(pa.timestamp("s"))


def _iso(values: Any) -> Any:
    """Return ISO dates with or without a time, its fraction and a zone as timestamps."""
    try:
        return values.cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        pass
    values = pc.replace_substring_regex(values, r" ?(UTC|GMT)$", "Z")
    values = pc.replace_substring_regex(values, r"([0-9]:[0-9]{2}:[0-9]{2})[.,]([0-9]{1,9})[0-9]*", r"\1.\2")
    values = pc.replace_substring_regex(values, r" ([+-][0-9]{2}:?[0-9]{2})$", r"\1")
    zoned = pc.match_substring_regex(values, r"[0-9](Z|[+-][0-9]{2}:?[0-9]{2})$")
    parted = pc.any(pc.match_substring_regex(values, r":[0-9]{2}\.[0-9]")).as_py()

    def read(unit: str) -> Any:
        plain, with_zone = pa.timestamp(unit), pa.timestamp(unit, "UTC")
        if pc.all(zoned).as_py():
            return values.cast(with_zone)
        if not pc.any(zoned).as_py():
            return values.cast(plain)
        nothing = pa.scalar(None, pa.string())
        one = pc.if_else(zoned, nothing, values).cast(plain)
        return pc.coalesce(one, pc.if_else(zoned, values, nothing).cast(with_zone).cast(plain))

    try:
        return read("ns" if parted else "s")
    except pa.ArrowInvalid:  # nanoseconds since 1970 end in 2262
        return read("us" if parted else "s")
