"""A page shows a table or figure over many runs: sheets for the terminal, and files that say how it was made."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.config.display import COLUMNS, Brief
from edgefr.config.sheet import Sheet
from edgefr.report.figures import written
from edgefr.report.latex import NEEDS, latex_table
from privacy.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

Record = dict[str, Any]
"""One line of a CSV file."""


@dataclass(frozen=True)
class Page:
    """A page is one table or figure. `name`: of its files; `records`: for the CSV, unrounded; `notes`: how to read it.

    `drawn_in`: the folder of its figure, beside the page or below it.
    """

    name: str
    title: str
    sheets: Sequence[Sheet]
    records: Sequence[Record]
    notes: Sequence[str] = ()
    figure: Figure | None = field(default=None, compare=False)
    drawn_in: str = "."

    def without(self, left: Collection[tuple[str, str]]) -> Page:
        """Return the page without some rows, (name, label) each: in sheets and in records."""
        if not left:
            return self
        names, labels = ({row[at] for row in left} for at in (0, 1))
        records = [r for r in self.records if r.get("method") not in names and r.get("row") not in names | labels]
        sheets = [sheet.without(labels) for sheet in self.sheets]
        return replace(self, sheets=[sheet for sheet in sheets if sheet.rows], records=records)

    def write(self, folder: Path, about: Sequence[str], latex: str | None = None) -> list[Path]:
        """`<name>.md`, `.csv` and `.tex`, and `.png` and `.svg` of a figure; `about` are lines common to all pages.

        `latex`: what the third holds (None: the sheets).
        """
        written_as = {"md": self.markdown(about), "csv": comma_separated(self.records), "tex": latex or self.latex()}
        paths = [write_atomic(folder / f"{self.name}.{end}", text) for end, text in written_as.items()]
        if self.figure is not None:
            paths += written(self.figure, folder / self.drawn_in / self.name)
        return paths

    def latex(self) -> str:
        """Return the tables as LaTeX."""
        tables = [
            latex_table(sheet.rows, f"{sheet.title}. {sheet.caption}".strip(), f"{self.name}-{number}", sheet.words)
            for number, sheet in enumerate(self.sheets, 1)
        ]
        return "\n\n".join([NEEDS, *tables]) + "\n"

    def markdown(self, about: Sequence[str] = ()) -> str:
        """Return the page as Markdown."""
        parts = [f"# {self.title}"]
        if self.figure is not None:
            parts.append(f"![{self.title}]({PurePosixPath(self.drawn_in, self.name)}.svg)")
        parts.append(_list(self.notes))
        for sheet in self.sheets:
            parts += [f"## {sheet.title}", markdown_table(sheet.rows)]
            parts += [sheet.caption] if sheet.caption else []
        parts += ["## How this was made", _list(about)] if about else []
        return "\n\n".join(parts) + "\n"


@dataclass(frozen=True, repr=False)
class Report(Brief):
    """A report is what many runs came to: its pages, and the files they were written to.

    `failures`: what went wrong, by run; `warnings`: runs that are missing; `records`: one per run.
    """

    pages: Sequence[Page]
    files: Sequence[Path]
    failures: Mapping[str, str]
    warnings: Sequence[str] = ()
    records: Sequence[Record] = ()

    @property
    def tables(self) -> dict[str, DataFrame]:
        """Return the numbers of each page, unrounded, by the page's name."""
        import pandas as pd

        return {page.name: pd.DataFrame(list(page.records)) for page in self.pages}

    @property
    def runs(self) -> DataFrame:
        """Return a row per run: what it was made with, its test metrics, and its folder."""
        import pandas as pd

        return pd.DataFrame(list(self.records))

    @property
    def notes(self) -> dict[str, list[str]]:
        """Return what each page comes to and how it is read, in sentences, by the page's name."""
        return {page.name: list(page.notes) for page in self.pages}

    @property
    def figures(self) -> dict[str, Path]:
        """Return the picture (PNG) of each page that has one, by the page's name; an SVG lies beside it."""
        return {path.stem: path for path in self.files if path.suffix == ".png"}

    def brief(self) -> list[RenderableType]:
        """Return the first table of the first page, failed runs and the first file."""
        sheets = [page.sheets[0].first(COLUMNS) for page in self.pages[:1] if page.sheets]
        failed = [f"failed: {name}: {problem}" for name, problem in self.failures.items()]
        return [*failed[:3], *sheets, *(f"wrote {path}" for path in self.files[:1])]


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Write rows with the same keys as a Markdown table: the first column left, the others right.

    >>> print(markdown_table([{"method": "FT", "D1": "0.1"}]))
    | method | D1 |
    |---|---:|
    | FT | 0.1 |
    >>> markdown_table([{"a": "x"}])
    '| a |\\n|---|\\n| x |'
    """
    titles = list(rows[0])
    head = [_line(titles), "|---|" + "---:|" * (len(titles) - 1)]
    return "\n".join([*head, *(_line([row[title] for title in titles]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace(".\n", ".").replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"


def comma_separated(records: Sequence[Record]) -> str:
    """Write records as CSV with a header.

    Columns come in order of first appearance, empty where a record has no value or NaN.
    """
    titles = list(dict.fromkeys(key for record in records for key in record))
    file = io.StringIO()
    writer = csv.DictWriter(file, titles, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: value for key, value in record.items() if value == value} for record in records)
    return file.getvalue()


@dataclass(frozen=True)
class Spread:
    """These are values of several seeds.

    NaN are left out; `sd` is the standard deviation with n - 1, NaN for fewer than two.

    >>> str(Spread.of([0.09, math.nan, 0.11])), str(Spread.of([0.1])), str(Spread.of([]))
    ('0.1000 ± 0.0141', '0.1000', '-')
    """

    mean: float
    sd: float
    number: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Take mean and standard deviation."""
        known = [value for value in values if not math.isnan(value)]
        mean = float(np.mean(known)) if known else math.nan
        return cls(mean, float(np.std(known, ddof=1)) if len(known) > 1 else math.nan, len(known))

    def record(self) -> Record:
        """Return it as columns of a CSV."""
        return {"mean": self.mean, "sd": self.sd, "seeds": self.number}

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        return f"{self.mean:.4f}" if math.isnan(self.sd) else f"{self.mean:.4f} ± {self.sd:.4f}"


def number(value: float | None, form: str = ".4f") -> str:
    """Show a number in a cell, `-` where there is none.

    >>> number(0.08551), number(-6.35, "+.2f"), number(None)
    ('0.0855', '-6.35', '-')
    """
    return "-" if value is None or math.isnan(value) else format(value, form)
