"""A cell of a table is one experiment with several seeds, and the results of its finished runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from edgefr.experiment import Experiment
from edgefr.metrics.significance import paired_t
from edgefr.report.pages import Spread
from edgefr.run import Run

Values = dict[str, Any]
Summary = Mapping[str, Any]
Pick = Callable[[Summary], float]
BySeed = dict[int, float]


class Cell(ABC):
    """A cell is one experiment without its seed. `data`: its data set."""

    data: str

    @property
    @abstractmethod
    def values(self) -> Values:
        """Return what differs from the defaults of the schema, by dotted name as for `--set`."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Return what tells it from other cells, for people and in names of folders."""

    @abstractmethod
    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run."""

    def folder(self, seed: int) -> str:
        """Return the name of the run's folder. A digest of all values keeps runs of another recipe apart."""
        digest = sha256(yaml.safe_dump(self.values, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.label}_{digest}_seed-{seed}"


@dataclass(frozen=True)
class Ask:
    """This is what is asked for: fidelity, seeds, and values over every recipe. `data_dir`: where archives lie."""

    fidelity: str
    seeds: Sequence[int]
    extra: Values = field(default_factory=dict)
    data_dir: Path | None = None


@dataclass(frozen=True)
class Found:
    """Summaries, and folders, of finished runs: {cell: {seed: ...}}."""

    summaries: Mapping[Any, Mapping[int, Summary]]
    runs: Mapping[Any, Mapping[int, Run]] = field(default_factory=dict)

    def by_seed(self, cell: Cell, pick: Pick) -> BySeed:
        """Return one value per finished seed."""
        return {seed: pick(summary) for seed, summary in self.summaries.get(cell, {}).items()}

    def spread(self, cell: Cell, pick: Pick) -> Spread:
        """Return the mean and standard deviation over the finished seeds."""
        return Spread.of(list(self.by_seed(cell, pick).values()))


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
