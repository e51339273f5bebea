"""Rows of TransFR's Tables 4 to 6, each a recipe that is run on two domains of one data set, in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from edgefr.config.documents import Document
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.report.pages import Record
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values
from privacy.errors import unknown
from privacy.table import Table

RECIPES = Path("experiments/transfr")
"""The folder of the recipes, in the working folder as devices.yaml: `<row>.yaml`."""
DOMAINS: Mapping[str, tuple[str, str]] = {
    "amazon-arts-office": ("arts", "office"),
    "amazon-movie-book": ("movie", "book"),
    "demo": ("books", "films"),
}
"""Data sets of two domains, which stand for the paper's tasks. Those that are generated show that a command works."""


class DomainPair(NamedTuple):
    """A task learns in one domain of a data set and recommends in the other."""

    data: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def words(self) -> Record:
        """Return what names it in records."""
        return {"data": self.data, "task": str(self)}

    def cell(self, ask: cells.Ask, row: str, extra: Values | None = None) -> cells.Cell:
        """Return the cell of a row on it."""
        return ask.cell(self.data, row, extra, f"{self.source}-{self.target}")

    def cells(self, ask: cells.Ask, rows: Iterable[str]) -> dict[str, cells.Cell]:
        """Return the cells of several rows on it, by name."""
        return {row: self.cell(ask, row) for row in rows}


ROWS: Table[cells.TableRow] = Table("row of TransFR's tables", cells.TableRow)
cells.register_rows(ROWS, "transfr")


class TransFRCell(cells.Listed):
    """A cell is a row on a task, within its two domains.

    >>> TransFRCell("demo", "pmf", "books-films").label
    'demo_books-films_pmf'
    """

    ROWS = ROWS

    @property
    def path(self) -> Path:
        """Return where the row's recipe lies."""
        return Path(ROWS[self.row].recipe or RECIPES / f"{self.row}.yaml")

    @property
    def changes(self) -> Values:
        """Return what goes over the recipe: the task, and full ranking of nobody, since tables show candidates."""
        source, target = self.within.split("-")
        task = {"protocol.source": source, "protocol.target": target}
        return {"data": self.data, **task, "evaluation.full_ranking_users": 0, **dict(self.extra)}

    @property
    def values(self) -> Values:
        """Return the recipe's values, and what goes over them."""
        recipe = Document.read(self.path).values
        return {key: value for key, value in recipe.items() if key != "name"} | self.changes

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run. Raises `InputError` where there is no recipe."""
        changes = [Change(key, value, f"--set {key}={value}") for key, value in self.changes.items()]
        return load_experiment(self.path, [*changes, Change("name", self.row, "name")], seed=seed)


def tasks(data: str) -> tuple[DomainPair, DomainPair]:
    """Return both directions between a data set's domains. Raises `InputError` for a set that has not two.

    >>> [str(task) for task in tasks("amazon-arts-office")]
    ['arts → office', 'office → arts']
    """
    if data not in DOMAINS:
        raise unknown("data set of two domains", data, DOMAINS)
    one, other = DOMAINS[data]
    return DomainPair(data, one, other), DomainPair(data, other, one)
