"""Rows of TransFR's Tables 4 to 6, each a recipe that is run on two domains of one data set, in both directions.

Owns: the rows by name, where their recipes lie, which tasks a data set has. Does not own: what an experiment's values
mean (`edgefr.experiment`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from edgefr.config.documents import Document
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values, label_parts
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
DATA = ("amazon-arts-office",)
"""What is run where no data set is named."""


class Task(NamedTuple):
    """A task learns in one domain of a data set and recommends in the other."""

    data: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


@dataclass(frozen=True)
class Row:
    """This is a row of a table. `kind`: central (all data in one place), federated, or TransFR.

    `recipe`: its file, where that is not named as the row.
    """

    name: str
    label: str
    kind: str
    recipe: Path | None = None

    @property
    def path(self) -> Path:
        """Return where its recipe lies."""
        return self.recipe or RECIPES / f"{self.name}.yaml"

    @property
    def trains_there(self) -> bool:
        """Say whether Tables 5 and 6 have it after local training in the target, as they have TransFR alone."""
        return self.kind == "transfr"


ROWS: Table[Row] = Table("row of TransFR's tables", Row)
for _row in (
    Row("pmf", "PMF, central", "central"),
    Row("ncf", "NCF, central", "central"),
    Row("cmf", "CMF, central", "central"),
    Row("emcdr-lin", "EMCDR (linear), central", "central"),
    Row("emcdr-mlp", "EMCDR (MLP), central", "central"),
    Row("fcf", "FCF", "federated"),
    Row("fedsasrec", "FedSASRec", "federated"),
    Row("feddcsr", "FedDCSR, domains as clients", "central"),
    Row(
        "transfr", "TransFR, cross-entropy and Adam on devices", "transfr", Path("experiments/transfr-arts-office.yaml")
    ),
    Row("transfr-ours", "TransFR, as we recommend it", "transfr", Path("experiments/transfr-across-domains.yaml")),
):
    ROWS.register(_row)


@dataclass(frozen=True)
class Cell(cells.Cell):
    """A cell is a row on a task. `extra`: values that differ from the recipe.

    >>> Cell(Task("demo", "books", "films"), "pmf").label
    'demo_books-films_pmf'
    """

    task: Task
    row: str
    extra: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # a value may be a list

    @property
    def data(self) -> str:  # type: ignore[override]
        """Return the data set."""
        return self.task.data

    @property
    def part(self) -> cells.Part:
        """Return the row."""
        return cells.Part(self.row, ROWS[self.row].label)

    @property
    def changes(self) -> Values:
        """Return what goes over the recipe: the task, and full ranking of nobody, since tables show candidates."""
        task = {"protocol.source": self.task.source, "protocol.target": self.task.target}
        return {"data": self.data, **task, "evaluation.full_ranking_users": 0, **dict(self.extra)}

    @property
    def values(self) -> Values:
        """Return the recipe's values, and what goes over them."""
        recipe = Document.read(ROWS[self.row].path).values
        return {key: value for key, value in recipe.items() if key != "name"} | self.changes

    @property
    def label(self) -> str:
        """Name data set, task, row and what differs from the recipe."""
        return "_".join([self.data, f"{self.task.source}-{self.task.target}", self.row, *label_parts(self.extra)])

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run. Raises `InputError` where there is no recipe."""
        changes = [Change(key, value, f"--set {key}={value}") for key, value in self.changes.items()]
        return load_experiment(ROWS[self.row].path, [*changes, Change("name", self.row, "name")], seed=seed)


class Ask(cells.Ask):
    """This is what is asked for, and the cells under this request."""

    def cell(self, task: Task, row: str, extra: Mapping[str, Any] | None = None) -> Cell:
        """Return a cell under this request; the request's own values go over `extra`."""
        whole = {**(extra or {}), **self.extra}
        if ROWS[row].kind == "central":  # which has epochs
            whole.pop("rounds", None)
        return Cell(task, row, tuple(sorted(whole.items())))

    def cells(self, task: Task, rows: Sequence[str]) -> dict[str, Cell]:
        """Return the cells of several rows on a task, by name."""
        return {row: self.cell(task, row) for row in rows}


def tasks(data: str) -> tuple[Task, Task]:
    """Return both directions between a data set's domains. Raises `InputError` for a set that has not two.

    >>> [str(task) for task in tasks("amazon-arts-office")]
    ['arts → office', 'office → arts']
    """
    if data not in DOMAINS:
        raise unknown("data set of two domains", data, DOMAINS)
    one, other = DOMAINS[data]
    return Task(data, one, other), Task(data, other, one)
