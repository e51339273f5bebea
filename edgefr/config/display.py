"""Answers of the Python API show themselves in a shell and in a notebook by a few lines that fit a screen."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINES, COLUMNS = 25, 120
"""A screen has so many."""
MORE = "..."
PRE = '<pre style="font-family: monospace; line-height: normal; white-space: pre-wrap">{code}</pre>'


class Brief:
    """Classes of this kind show themselves by `brief`: tables and lines, the most telling first, the place last."""

    @abstractmethod
    def brief(self) -> Sequence[RenderableType]:
        """Return what is shown."""

    def __repr__(self) -> str:
        return text(self.brief())

    def _repr_html_(self) -> str:
        return html(self.brief())


def text(parts: Sequence[RenderableType]) -> str:
    """Return what is to be shown as plain text of at most 25 lines and 120 columns.

    >>> text(["one", "two"])
    'one\\ntwo'
    """
    return "\n".join(line.rstrip() for line in fitted(parts))


def html(parts: Sequence[RenderableType]) -> str:
    """Return the same lines as HTML, with their colours."""
    from rich.text import Text

    console = _console(styled=True, record=True)
    for line in fitted(parts, styled=True):
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_html(inline_styles=True, code_format=PRE)


def fitted(parts: Sequence[RenderableType], styled: bool = False) -> list[str]:
    """Return lines that fit a screen: where there are too many, those before the last part are cut."""
    whole = [_lines(part, styled) for part in parts]
    last = whole.pop() if whole else []
    lines, room = [line for part in whole for line in part], LINES - len(last)
    return [*(lines if len(lines) <= room else [*lines[: room - 1], MORE]), *last]


def _lines(part: RenderableType, styled: bool) -> list[str]:
    console = _console(styled)
    with console.capture() as caught:
        console.print(part, markup=False)
    return caught.get().rstrip("\n").split("\n")


def _console(styled: bool, record: bool = False) -> Console:
    from rich.console import Console

    own = {"force_jupyter": False, "highlight": False, "legacy_windows": False, "force_terminal": styled}
    colours = {"no_color": not styled, "color_system": "truecolor" if styled else None}
    return Console(width=COLUMNS, file=io.StringIO(), record=record, **own, **colours)  # type: ignore[arg-type]
