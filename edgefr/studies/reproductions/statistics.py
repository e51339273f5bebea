"""Tables of data-set statistics show what papers print beside what the archives at hand hold, counted anew.

Owns: the page, and how a count is compared. Does not own: which counts a paper prints (a folder per paper). Nothing is
trained for such a table, so it has no cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record
from edgefr.studies.reproductions.cells import Ask, Found
from edgefr.studies.reproductions.exhibits import Exhibit
from privacy.progress import Progress

Counts = Mapping[str, float]


@dataclass(frozen=True)
class Printed:
    """This is what a paper prints of one data set, and how it is counted here.

    `counts`: by the statistic's name, as printed (None: nothing is). `count(data_dir)` returns those of the archive,
    by the same names. `errors`: what is wrong with a printed count, and what is right, by its name. `asks`: data sets
    that have to be there (none: its own). `places`: decimals. `wrong`: what the errors are called.
    """

    label: str
    data: str
    counts: Mapping[str, float | None]
    count: Callable[[Path | None], Counts]
    errors: Mapping[str, str] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    places: int = 0
    wrong: str = "printed error"

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the data sets that it is counted from."""
        return self.asks or (self.data,)


def exhibit(name: str, title: str, rows: Sequence[Printed], notes: Sequence[str]) -> Exhibit[Any]:
    """Return a table of statistics as an exhibit; `notes` say how the counts are made."""
    data = tuple(dict.fromkeys(data for row in rows for data in row.needs))

    def page(ask: Ask, found: Found, names: Sequence[str], progress: Progress | None) -> Page:
        records = list[Record]()
        for number, row in enumerate(rows):
            if progress is not None:
                progress("count", number, len(rows), row.label)
            records += _records(row, names, ask.data_dir)
        sheet = Sheet(title, [_shown(record) for record in records], words=["data", "what", "remark"])
        return Page(name, title, [sheet], records, notes)

    return Exhibit(data, lambda ask, data: (), page)


def _records(row: Printed, names: Sequence[str], data_dir: Path | None) -> list[Record]:
    """Return a row for every statistic of a data set."""
    there = all(name in names for name in row.needs)
    counted = row.count(data_dir) if there else {}
    return [
        {
            "data": row.label,
            "statistic": what,
            "printed": printed,
            "counted": counted.get(what),
            "remark": _remark(row, what, printed, counted if there else None),
            "places": row.places,
        }
        for what, printed in row.counts.items()
    ]


def _remark(row: Printed, what: str, printed: float | None, counted: Counts | None) -> str:
    """Say whether a printed count and one made here (None: none is) are the same, as finely as it is printed."""
    if what in row.errors:
        return f"{row.wrong}: {row.errors[what]}"
    if counted is None:
        return "its archive is not at hand"
    if what not in counted:
        return "not counted here"
    if printed is None:
        return "not in the paper"
    same = abs(counted[what] - printed) <= 0.5 * 10.0**-row.places + 1e-9
    return "same" if same else f"differs by {counted[what] - printed:+,.{row.places}f}"


def _shown(record: Record) -> dict[str, str]:
    """Return a record as cells."""

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:,.{record['places']}f}"

    return {
        "data": record["data"],
        "what": record["statistic"],
        "printed": cell(record["printed"]),
        "counted here": cell(record["counted"]),
        "remark": record["remark"],
    }
