"""Tables that fit the terminal: one that is too wide is cut into parts, each starting with the first column."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

WIDEST = 24
"""Where room is short, columns of words are folded at this width; columns of numbers never are."""

DIGEST = re.compile("[0-9a-f]{64}")
"""What is known by its first digits."""


@dataclass(frozen=True)
class Sheet:
    """This is a table for the terminal. `rows` share their keys, which are the titles of the columns.

    `words`: columns that hold words (left, may be folded); the others hold numbers (right). `rules`: rows with a line
    below them, by number. `bold`: rows that matter most. Nothing in a cell is read as markup.

    >>> Console(width=40).print(Sheet("speeds", [{"device": "watch", "s": "2.5"}], words=["device"]))
    speeds
    ┏━━━━━━━━┳━━━━━┓
    ┃ device ┃   s ┃
    ┡━━━━━━━━╇━━━━━┩
    │ watch  │ 2.5 │
    └────────┴─────┘
    """

    title: str
    rows: Sequence[Mapping[str, str]]
    words: Collection[str]
    caption: str = ""
    rules: Collection[int] = ()
    bold: Collection[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text(self.title, style="bold")
        for columns in self.parts(options.max_width):
            table = Table()
            for name in columns:
                table.add_column(Text(name), justify="left" if name in self.words else "right", overflow="fold")
            for number, row in enumerate(self.rows):
                style = "bold" if number in self.bold else None
                table.add_row(*(Text(row[c]) for c in columns), style=style, end_section=number in self.rules)
            yield table
        if self.caption:
            yield Text(self.caption, style="dim")

    def without(self, labels: Collection[str]) -> Sheet:
        """Return the rows that begin with none of these labels; a line below a row that is left out moves up."""
        kept = [at for at, row in enumerate(self.rows) if next(iter(row.values())) not in labels]
        rules = {sum(place <= at for place in kept) - 1 for at in self.rules} - {-1}
        bold = [kept.index(at) for at in self.bold if at in kept]
        return replace(self, rows=[self.rows[at] for at in kept], rules=sorted(rules), bold=bold)

    def first(self, width: int) -> Sheet:
        """Return the columns that fit beside each other, without the caption."""
        columns = self.parts(width)[0]
        return replace(self, rows=[{name: row[name] for name in columns} for row in self.rows], caption="")

    def parts(self, width: int) -> list[list[str]]:
        """Return the columns of each part, so that none is wider than `width` characters if it can be helped."""
        first, *rest = self.rows[0]
        taken = start = self._width(first) + 1
        parts = [[first]]
        for name in rest:
            if taken + self._width(name) > width and len(parts[-1]) > 1:
                parts.append([first])
                taken = start
            parts[-1].append(name)
            taken += self._width(name)
        return parts

    def _width(self, name: str) -> int:
        """Count the characters that a column takes, its padding and one border included."""
        lines = [line for text in (name, *(row[name] for row in self.rows)) for line in text.split("\n")]
        widest = max(map(cell_len, lines))
        return 3 + (min(widest, WIDEST) if name in self.words else widest)


def plainly(value: Any) -> str:
    """Write a value of a summary as tables show it: numbers in four digits, lists and names without brackets.

    >>> plainly({"missing": [0, 2], "std_on_mean": 1.22474487, "trusted": None})
    'missing 0, 2; std on mean 1.225; trusted none'
    """
    if value is None or (isinstance(value, str | list | tuple | dict) and not value):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    if isinstance(value, Mapping):
        words = {name: name if isinstance(one, Mapping) else str(name).replace("_", " ") for name, one in value.items()}
        return "; ".join(f"{words[name]} {_inner(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_inner, value))
    return f"{value[:16]}..." if DIGEST.fullmatch(str(value)) else str(value)


def _inner(value: Any) -> str:
    """Write a part of a value, in brackets where it has parts with names."""
    return f"({plainly(value)})" if isinstance(value, Mapping) and value else plainly(value)


def count(number: int, noun: str) -> str:
    """Write a number and what it counts.

    >>> count(1, "round"), count(1200, "round"), count(2, "class")
    ('1 round', '1,200 rounds', '2 classes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
