"""A cell of a table is one experiment with several seeds, and the results of its finished runs."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path
from typing import Any, ClassVar

import yaml

from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.metrics.significance import paired_t
from edgefr.report.pages import Record, Spread
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.published import specification
from privacy.table import Table

Values = dict[str, Any]
Summary = Mapping[str, Any]
Pick = Callable[[Summary], float]
BySeed = dict[int, float]

FIDELITIES = ("released", "paper")
"""These say whom to follow where a paper and its released code differ."""


@dataclass(frozen=True)
class Cell(ABC):
    """A cell is one experiment without its seed: a row of a paper's tables on a data set.

    `within`: the backbone or task, where rows come for each. `extra`: values that differ from the row's recipe.
    """

    FIDELITY: ClassVar[str] = ""
    """What pages say of the fidelity, where a paper has no choice."""
    LABELS: ClassVar[Mapping[str, str]] = {}
    """What the paper calls its rows."""

    data: str
    row: str
    within: str = ""
    fidelity: str = ""
    extra: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # a value may be a list

    @property
    def title(self) -> str:
        """Return what pages call the row."""
        return self.LABELS.get(self.row, self.row)

    @property
    @abstractmethod
    def values(self) -> Values:
        """Return what differs from the defaults of the schema, by dotted name as for `--set`."""

    @abstractmethod
    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run."""

    def loaded(self, values: Values, seed: int) -> Experiment:
        """Return the experiment of these values on the cell's data."""
        overrides = [f"{key}={as_yaml(value)}" for key, value in values.items()]
        return load_experiment(overrides=overrides, data=self.data, seed=seed)

    def reads(self, name: str, value: Any) -> bool:
        """Say whether a value would make another experiment of it, so that tables share a run where it would not."""
        values = self.values
        return name not in values or values[name] != value

    @property
    def words(self) -> Record:
        """Return what names the row in records."""
        return {"method": self.row}

    @property
    def backbone(self) -> str | None:
        """Return its backbone, where rows come for each."""
        return None

    @property
    def label(self) -> str:
        """Return what tells it from other cells, for people and in names of folders."""
        named = [self.data, self.fidelity, self.within, self.row, *label_parts(self.extra)]
        return "_".join(name for name in named if name)

    def folder(self, seed: int) -> str:
        """Return the name of the run's folder. A digest of all values keeps runs of another recipe apart."""
        return self.named(yaml.safe_dump(self.values, sort_keys=True), seed)

    def named(self, digested: str, seed: int) -> str:
        """Return the name of the folder of a run that a text decides."""
        return f"{self.label}_{sha256(digested.encode()).hexdigest()[:8]}_seed-{seed}"


@dataclass(frozen=True)
class TableRow:
    """This is a row of a table. `kind`: federated, central (all data in one place), or what else its paper has.

    `recipe`: its file, where that is not named as the row.
    """

    name: str
    label: str
    kind: str = "federated"
    recipe: str | None = None

    @property
    def judged(self) -> bool:
        """Say whether the row takes part in comparisons: one as its public code may know held-out items does not."""
        return self.kind != "released"


def register_rows(rows: Table[TableRow], paper: str) -> None:
    """Fill the table of a paper's rows, as its specification has them."""
    for name, row in specification(paper)["rows"].items():
        rows.register(TableRow(name, **row))


class Listed(Cell):
    """Cells of this kind are of a paper whose rows are entries of a table, each with a recipe of its own."""

    FIDELITY = "as each recipe says"
    ROWS: ClassVar[Mapping[str, TableRow]] = {}

    @property
    def title(self) -> str:
        """Return the row's label."""
        return self.ROWS[self.row].label

    @property
    def words(self) -> Record:
        """Return what names the row in records."""
        return {"method": self.row, "kind": self.ROWS[self.row].kind}

    def reads(self, name: str, value: Any) -> bool:
        """Say whether the row reads a value: central ones have epochs, and no rounds."""
        return name != "rounds" or self.ROWS[self.row].kind != "central"


@dataclass(frozen=True)
class Ask:
    """This is what is asked for: fidelity, seeds, and values over every recipe. `data_dir`: where archives lie.

    `kind`: the paper's cells; `stream`: one-pass or cyclic, None for that of the recipe; `rows` and `backbones`: the
    part of each table, nothing stands for all of them.
    """

    kind: type[Cell]
    fidelity: str
    seeds: Sequence[int]
    extra: Values = field(default_factory=dict)
    data_dir: Path | None = None
    stream: str | None = None
    rows: Sequence[str] = ()
    backbones: Sequence[str] = ()

    @property
    def part(self) -> list[str]:
        """Return the rows and backbones that are asked for."""
        return [*self.rows, *self.backbones]

    def has(self, cell: Cell) -> bool:
        """Say whether a cell is of the part of its table that is asked for."""
        return (not self.rows or cell.row in self.rows) and (not self.backbones or cell.backbone in self.backbones)

    def cell(self, data: str, row: str, extra: Values | None = None, within: str = "") -> Cell:
        """Return a cell under this request, whose own values go over `extra`."""
        plain = self.kind(data, row, within, "" if self.kind.FIDELITY else self.fidelity)
        stream = {} if self.stream is None else {"protocol.stream": self.stream}
        asked = {**(extra or {}), **stream, **self.extra}
        return replace(plain, extra=tuple(sorted((k, v) for k, v in asked.items() if plain.reads(k, v))))

    def cells(self, data: str, rows: Iterable[str], within: str = "") -> dict[str, Cell]:
        """Return the cells of several rows, by name."""
        return {row: self.cell(data, row, within=within) for row in rows}


def at(*path: str | int) -> Pick:
    """Pick the number that keys and places lead to.

    >>> at("blocks", 0, "HR@10")({"blocks": [{"HR@10": 0.5}]})
    0.5
    """
    return lambda summary: float(reduce(getitem, path, summary))  # type: ignore[arg-type]


@dataclass(frozen=True)
class FinishedRuns:
    """Summaries, and folders, of finished runs: {cell: {seed: ...}}."""

    summaries: Mapping[Any, Mapping[int, Summary]]
    runs: Mapping[Any, Mapping[int, Run]] = field(default_factory=dict)

    def by_seed(self, cell: Cell, pick: Pick) -> BySeed:
        """Return one value per finished seed."""
        return {seed: pick(summary) for seed, summary in self.summaries.get(cell, {}).items()}

    def spread(self, cell: Cell, pick: Pick) -> Spread:
        """Return the mean and standard deviation over the finished seeds."""
        return Spread.of(list(self.by_seed(cell, pick).values()))

    def fullest(self, cells: Iterable[Cell], pick: Pick) -> Cell | None:
        """Return the first of the cells with the most seeds that have a value; None where none has."""
        counts = {cell: self.spread(cell, pick).number for cell in cells}
        best = max(counts, key=lambda cell: counts[cell], default=None)
        return best if best is not None and counts[best] else None


def label_parts(extra: Iterable[tuple[str, Any]]) -> list[str]:
    """Return what differs from a recipe, for names of folders: of a list, its values with dashes between them.

    >>> label_parts([("model.adapter", [64, 32]), ("rounds", 2)])
    ['adapter=64-32', 'rounds=2']
    """
    return [f"{key.rsplit('.', 1)[-1]}={_plain(value)}" for key, value in extra]


def _plain(value: Any) -> str:
    return re.sub(r"[^0-9A-Za-z.]+", "-", as_yaml(value)).strip("-") if isinstance(value, list | dict) else str(value)


def change(value: BySeed, of: BySeed) -> float:
    """Return by how many % the mean of `value` is above that of `of`, over the seeds that both have; NaN without any.

    >>> round(change({0: 0.09, 1: 0.11}, {0: 0.08, 1: 0.08, 2: 0.5}), 9)
    25.0
    """
    shared = sorted(value.keys() & of.keys())
    below = sum(of[seed] for seed in shared)
    return 100 * (sum(value[seed] for seed in shared) / below - 1) if below else math.nan


def p_value(one: BySeed, two: BySeed) -> float:
    """Return the two-sided p of the paired t-test; a pair is one seed's two values. NaN for fewer than two pairs.

    >>> p_value({0: 0.1}, {0: 0.2})
    nan
    """
    shared = sorted(one.keys() & two.keys())
    return paired_t([one[seed] for seed in shared], [two[seed] for seed in shared])


def as_yaml(value: Any) -> str:
    """Return a value as YAML on one line: unlike JSON's, its 1e-05 is a number."""
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
