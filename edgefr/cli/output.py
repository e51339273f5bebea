"""Lines, tables, warnings and the pages of many runs are printed here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from edgefr.report.pages import Page, Report


def say(line: object, style: str | None = None, err: bool = False) -> None:
    """Print a line as it stands, never broken, so that it can be copied; on stderr where `err`."""
    Console(stderr=err, soft_wrap=True, highlight=False).print(str(line), style=style, markup=False)


def printable(text: str) -> str:
    """Return a text in which '?' stands for what a terminal would act on."""
    return "".join(character if character.isprintable() else "?" for character in text)


def warn(line: str) -> None:
    """Print a warning on stderr."""
    say(f"warning: {line}", style="yellow", err=True)


def show(*parts: Any) -> None:
    """Print tables, each cut to the width of the terminal."""
    console = Console()
    for part in parts:
        console.print(part)


def show_lines(rows: Sequence[Sequence[str]], *notes: str) -> None:
    """Print rows of words, the first as their heading, in columns; a terminal gets what fits, and a note."""
    console = Console(soft_wrap=True, highlight=False)
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ends = [sum(wide[: number + 1]) + 2 * number for number in range(len(wide))]
    most = console.width if console.is_terminal else ends[-1]
    whole = sum(end <= most for end in ends)
    for number, row in enumerate(rows):
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, wide, strict=True)).rstrip()
        line = line if len(line) <= most else f"{line[: most - 1]}…"
        console.print(line, style=None if number else "bold", markup=False)
    if whole < len(wide):
        notes = (*notes, f"cut at this width: {', '.join(rows[0][whole:])}. Widen the terminal, or pipe into a file.")
    for note in notes:
        console.print(note, style="dim", markup=False, soft_wrap=not console.is_terminal)


def show_facts(title: str, facts: Iterable[tuple[str, str]], words: Sequence[str] = ("what", "value")) -> None:
    """Print a table of two columns: what, and its value."""
    from edgefr.config.sheet import Sheet

    show(Sheet(title, [{"what": name, "value": value} for name, value in facts], words=words))


def show_line(line: str, style: str | None = None) -> None:
    """Print a line that is broken at the width of the terminal."""
    Console(highlight=False).print(line, style=style, markup=False)


def show_notes(notes: Iterable[str]) -> None:
    """Print how tables are to be read."""
    for note in notes:
        show_line(f"- {note}", style="dim")


def show_json(values: Any) -> None:
    """Print values as JSON, which has no NaN."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def show_page(page: Page) -> None:
    """Print the tables of a page, and how to read them."""
    show(*page.sheets)
    show_notes(page.notes)


def end(found: Report) -> None:
    """Print what was written, what is missing and what failed; end with 1 where a run failed."""
    for path in found.files:
        say(f"wrote {path}")
    for line in found.warnings:
        warn(line)
    for name, problem in found.failures.items():
        say(f"failed: {name}: {problem}", style="red", err=True)
    if found.failures:
        raise typer.Exit(1)
