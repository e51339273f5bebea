"""Tables and figures of a paper are lines (a row's runs) and columns (what is taken from them), and what is printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Cell, FinishedRuns, Pick, change, p_value
from edgefr.studies.reproductions.published import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, str]


@dataclass(frozen=True)
class Line:
    """A line is a row of a table: its first column, its runs, what names its records, and what is printed of it."""

    head: Row
    cell: Cell
    words: Record
    printed: Numbers = field(default_factory=dict)


def lines(
    cells: Mapping[str, Cell],
    words: Record,
    printed: Mapping[tuple[str, ...], Numbers] | None = None,
    place: tuple[str, ...] = (),
) -> list[Line]:
    """Return a line per row of a table; what is printed of it is found by its place, which ends with the row."""
    return [
        Line({"method": cell.title}, cell, words | cell.words, (printed or {}).get((*place, row), {}))
        for row, cell in cells.items()
    ]


Column = Callable[[FinishedRuns, Line, list[Record]], Row]
"""A column, or several, of a line. It may add to the line's records."""


def level(
    title: str, pick: Pick, words: Record | None = None, paper: str | None = None, form: Callable[[Spread], str] = str
) -> Column:
    """Return a column of means over seeds.

    `words` name its records (None: it has none). `paper`: the title of the column of printed numbers, which is none for
    "", when records alone say that nothing is printed.
    """

    def column(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
        spread, was = found.spread(line.cell, pick), line.printed.get(title.replace("\n", " "))
        if words is not None:
            records.append({**line.words, **words, **spread.record(), **({} if paper is None else {"published": was})})
        seen = number(was, ".4f" if not isinstance(was, int) else "g")
        return {title: form(spread), **({paper: seen} if paper else {})}

    return column


def versus(base: Cell, pick: Pick, titles: tuple[str, str, str], names: tuple[str, str]) -> Column:
    """Return three columns: by how many % a line is above a base, the same as printed, and p over seeds.

    `names`: of the first and the last in the record before. The base's own are empty.
    """

    def column(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
        if line.cell == base:
            return dict.fromkeys(titles, "")
        own, other = (found.by_seed(cell, pick) for cell in (line.cell, base))
        above, was, p = change(own, other), line.printed.get(titles[0].replace("\n", " ")), p_value(own, other)
        records[-1] |= {f"{names[0]}_percent": above, f"published_{names[0]}_percent": was, names[1]: p}
        return dict(zip(titles, (number(above, "+.2f"), number(was, "+.2f"), number(p, ".3f")), strict=True))

    return column


def seeds(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
    """Return how many seeds are finished."""
    return {"seeds": str(len(found.summaries.get(line.cell, {})))}


@dataclass(frozen=True)
class Panel:
    """A panel of a figure has points by name and place, each a spread over seeds."""

    title: str
    x: str
    y: str
    curves: Mapping[str, Mapping[Any, Spread]]
    scale: str = "linear"
    kind: Literal["line", "bar", "histogram"] = "line"


@dataclass(frozen=True)
class Made:
    """This is what a page is made of. `said`: sentences on its outcome, which stand before its notes."""

    sheets: Sequence[Sheet] = ()
    records: Sequence[Record] = ()
    said: Sequence[str] = ()
    panels: Sequence[Panel] = ()

    def __add__(self, other: Made) -> Made:
        return Made(*([*own, *more] for own, more in zip(vars(self).values(), vars(other).values(), strict=True)))


def sheet(
    found: FinishedRuns,
    title: str,
    lines: Sequence[Line],
    columns: Sequence[Column],
    below: Sequence[tuple[Line, Sequence[Column]]] | None = None,
    caption: str = "",
    best: Pick | None = None,
    bold: Sequence[int] = (),
) -> Made:
    """Return one table. `below`: rows under a rule, with columns of their own; `bold`: rows, or `best`: its highest."""
    rows, records = list[Row](), list[Record]()
    for line, own in [*((line, columns) for line in lines), *(below or ())]:
        made = list[Record]()
        row = (dict.fromkeys(rows[0], "") if rows else {}) | line.head
        for column in own:
            row |= column(found, line, made)
        rows.append(row)
        records += made
    bold = bold if best is None else highest([found.spread(line.cell, best).mean for line in lines])
    rules = [] if below is None else [len(lines) - 1]
    return Made([Sheet(title, rows, [next(iter(rows[0]))], caption, rules, bold)], records)


def highest(means: Sequence[float]) -> list[int]:
    """Return the place of the highest of some means, none where none is known."""
    known = [mean for mean in means if not math.isnan(mean)]
    return [means.index(max(known))] if known else []


def draw(panels: Sequence[Panel], columns: int, width: float, height: float) -> Figure:
    """Return a figure of panels, so many beside each other; `height` is that of a row."""
    from matplotlib.figure import Figure

    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        for at, (name, points) in enumerate(panel.curves.items()):
            _points(axis, panel.kind, at, name, points)
        axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        if panel.kind == "line":
            axis.set_xscale(panel.scale)
        elif panel.kind == "bar":
            places = list(next(iter(panel.curves.values())))
            axis.set_xticks([place + 0.2 for place in range(len(places))], places, rotation=20, fontsize="x-small")
            axis.axhline(0, color="black", linewidth=0.8)
        axis.grid(alpha=0.3)
        if any(panel.curves):
            axis.legend(fontsize="small")
    return figure


def _points(axis: Axes, kind: str, at: int, name: str, points: Mapping[Any, Spread]) -> None:
    spreads = list(points.values())
    errors = [0.0 if spread.number < 2 else spread.sd for spread in spreads]
    means = [spread.mean for spread in spreads]
    if kind == "line":
        marks: dict[str, Any] = {"marker": "o", "markersize": 4, "capsize": 3} if len(points) < 12 else {}
        axis.errorbar(list(points), means, errors, label=name or None, **marks)
    elif kind == "bar":
        places = [place + 0.4 * at for place in range(len(spreads))]
        axis.bar(places, means, 0.38, yerr=errors if any(errors) else None, capsize=3, label=name)
    else:
        axis.bar(list(points), means, 1 / max(len(points), 1), align="edge", alpha=0.6, label=name)
