"""Rows of FedCAR's tables: each is a recipe that `edgefr tune` made, the same search budget for all."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefr.config.documents import Document
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values
from edgefr.studies.tuning.rules import COLUMNS
from privacy.errors import InputError
from privacy.table import Table

RECIPES = Path("experiments/fedcar/recipes")
"""The folder of the recipes, in the working folder as devices.yaml: `<data>/<row>.yaml`, its trials in `<row>.csv`."""
SOURCE = "ml-100k"
"""Rows of a data set on which nothing was searched have the recipes of this one: no row has an advantage there."""
PROTOCOL = "experiments/fedcar/protocol.yaml"


ROWS: Table[cells.TableRow] = Table("row of FedCAR's tables", cells.TableRow)
cells.register_rows(ROWS, "fedcar")


class FedCARCell(cells.Listed):
    """A cell is a row on a data set.

    >>> FedCARCell("ml-100k", "fedcar").label
    'ml-100k_fedcar'
    """

    ROWS = ROWS

    @property
    def path(self) -> Path:
        """Return where the row's recipe lies. Raises `InputError` where there is none."""
        lent = ROWS[self.row].judged and not searched(self.data)
        path = RECIPES / (SOURCE if lent else self.data) / f"{self.row}.yaml"
        if not path.is_file():
            raise InputError(
                f"there is no recipe {path} yet: make one by edgefr tune {self.row} --experiment {PROTOCOL} --data "
                f"{path.parent.name}, or leave the row out by --rows"
            )
        return path

    @property
    def values(self) -> Values:
        """Return the recipe's method and hyper-parameters, and what goes over them."""
        recipe = Document.read(self.path).values
        model = {f"model.{name}": value for name, value in (recipe.get("model") or {}).items()}
        return {"method": recipe.get("method"), **model, **dict(self.extra)}

    def folder(self, seed: int) -> str:
        """Return the name of the run's folder. A digest of the recipe keeps runs of another one apart."""
        return self.named(f"{self.path.read_text(encoding='utf-8')}{self.extra}", seed)

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run. Raises `InputError` for a seed that the recipe was searched with.

        So for a recipe of other data, another protocol or other rules of search than the rows it stands beside.
        """
        found, data = load_experiment(self.path), self.path.parent.name
        if found.data != data:
            raise InputError(f"{self.path} is of data set {found.data} and lies among those of {data}; move it away")
        if ROWS[self.row].judged:
            _check_protocol(self.path, found.protocol.model_dump())
            _check_search(self.path, seed)
        changes = [Change(name, value, f"--set {name}={value}") for name, value in self.extra]
        here = [Change("name", f"fedcar-{self.row}", "name"), Change("data", self.data, "data")]
        return load_experiment(self.path, [*here, *changes], seed=seed)


def searched(data: str) -> bool:
    """Say whether recipes were searched on a data set; then every row that is compared needs one of its own there."""
    return any((RECIPES / data / f"{name}.yaml").is_file() for name in ROWS if ROWS[name].judged)


def _check_protocol(recipe: Path, found: Mapping[str, Any]) -> None:
    """Every row that is compared is of users who are chosen, and held out from, alike."""
    shared = load_experiment(PROTOCOL, ["method=fedmf"]).protocol.model_dump()
    for name in {**shared, **found}:
        if found.get(name) != shared.get(name):
            told = f"protocol.{name} is {found.get(name)}, and {shared.get(name)} in {PROTOCOL}"
            raise InputError(f"{recipe}: {told}; tune it again with --experiment {PROTOCOL}")


def _check_search(recipe: Path, seed: int) -> None:
    """A row is reported with seeds that it was not chosen with, beside rows that were chosen by the same rules."""
    own = _rules(recipe)
    if str(seed) in own["seeds"].split():
        raise InputError(f"{recipe} was chosen with seed {seed}, so it is not reported with it; use other seeds")
    for other in sorted(recipe.parent.glob("*.yaml")):
        if other.stem in ROWS and ROWS[other.stem].judged:
            for name, value in _rules(other).items():
                if value != own[name]:
                    told = f"{name} {own[name]} and {value}"
                    raise InputError(
                        f"{recipe} and {other} were chosen by different rules: {told}; rows of one table need the "
                        "same, so tune one of them again"
                    )


def _rules(recipe: Path) -> Mapping[str, str]:
    """Return the rules that a recipe was chosen by, as the table of its trials has them."""
    path = recipe.with_suffix(".csv")
    mend = f"copy {path.name}, which edgefr tune wrote beside the recipe"
    if not path.is_file():
        raise InputError(f"{path} is not there, so nobody knows how {recipe} was chosen; {mend}")
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    if not lines or not {*COLUMNS} <= lines[0].keys():
        raise InputError(f"{path} does not say by which rules {recipe} was chosen; {mend}")
    return {name: lines[0][name] for name in COLUMNS}
