"""A section of a page is a title and its parts; each kind of part is shown in one way, by `templates/macros.html`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from edgefr.config.sheet import Sheet
from edgefr.report.web.chart import Axis, Chart, Strip

ROOMY = "strips roomy"
"""The look of a table with few columns, of which drawn ones are wide."""


@dataclass(frozen=True)
class Section:
    """A section has a name (its anchor), a title, and parts."""

    name: str
    title: str
    parts: Sequence[SectionPart]

    @classmethod
    def of(cls, name: str, title: str, parts: Iterable[SectionPart | None]) -> Section:
        """Return a section of parts; None among them is left out."""
        return cls(name, title, [part for part in parts if part is not None])


@dataclass(frozen=True)
class SectionPart:
    """A part belongs to a section: `kind` says how `of` is shown, `look` is a class of the style, or a title."""

    kind: str
    of: Any
    look: str = ""


@dataclass(frozen=True)
class Drawn:
    """This cell of a table is drawn on the axis of its column; `rule` is where a dashed line is, in percent."""

    axis: Axis
    strip: Strip | None
    tone: str = "c0"
    rule: float | None = None


@dataclass(frozen=True)
class ReportTable(Sheet):
    """This table may have cells that are drawn. `classes`: the device class of each row, which can be marked."""

    rows: Sequence[Mapping[str, Any]]
    classes: Sequence[str] = ()
    look: str = ""

    @property
    def part(self) -> SectionPart | None:
        """Return the table as a part, its title for those who do not see it; None where it has no rows."""
        return SectionPart("sheet", self) if self.rows else None


def text(words: str, look: str = "") -> SectionPart:
    """Return a paragraph: `note` is smaller, `big` is larger."""
    return SectionPart("text", words, look)


def heading(words: str) -> SectionPart:
    return SectionPart("heading", words)


def sheet(found: Sheet, look: str = "titled") -> SectionPart:
    """Return a table of the terminal; its title is seen where it is `titled`."""
    return SectionPart("sheet", found, look)


def facts(rows: Iterable[tuple[str, object]]) -> SectionPart:
    """Return names and values, side by side."""
    return SectionPart("facts", list(rows))


def digests(rows: Iterable[tuple[str, str]]) -> SectionPart:
    return SectionPart("digests", list(rows))


def command(words: str) -> SectionPart:
    return SectionPart("command", words)


def listed(lines: Iterable[str]) -> SectionPart:
    return SectionPart("list", list(lines))


def chart(drawn: Chart) -> SectionPart:
    return SectionPart("chart", drawn)


def image(source: str, words: str) -> SectionPart:
    """Return a picture; `words`: what it shows, for those who do not see it."""
    return SectionPart("image", source, words)


def folded(summary: str, parts: Iterable[SectionPart | None]) -> SectionPart:
    """Return parts that are shown when their summary is chosen."""
    return SectionPart("folded", [part for part in parts if part is not None], summary)


def yes_no(value: bool) -> Markup:
    return Markup('<span class="yes">✓ yes</span>') if value else Markup('<span class="no">✗ no</span>')


def graded(name: str | None) -> Markup:
    """Return how well a figure is known, in its colour."""
    return Markup("–") if name is None else Markup('<span class="grade {0}">{0}</span>').format(name)
