"""Hyper-parameters of the tables' experiments: `recipes.yaml`, rules from the general to the special.

Owns: which values an experiment has, and the name that tells runs apart. Does not own: the schema (edgefr.experiment).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from edgefr.experiment.continual import STRATEGIES, readers
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values, as_yaml, label_parts
from edgefr.studies.reproductions.f3crec.results import LABELS

_KEYS = ("data", "backbone", "strategy", "fidelity")


@dataclass(frozen=True)
class Cell(cells.Cell):
    """A cell of a table is one experiment without its seed. `extra`: values that differ from the recipe.

    >>> Cell("ml-100k", "fedmf", "f3crec", "released").label
    'ml-100k_released_fedmf_f3crec'
    """

    data: str
    backbone: str
    strategy: str
    fidelity: str
    extra: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # a value may be a list

    @property
    def part(self) -> cells.Part:
        """Return strategy and backbone."""
        return cells.Part(self.strategy, LABELS.get(self.strategy, self.strategy), self.backbone)

    @property
    def values(self) -> Values:
        """Return what differs from the defaults of the schema, by dotted name as for `--set`."""
        return recipe(self.data, self.backbone, self.strategy, self.fidelity) | dict(self.extra)

    @property
    def label(self) -> str:
        """Name data set, fidelity, backbone, strategy and what differs from the recipe."""
        return "_".join([self.data, self.fidelity, self.backbone, self.strategy, *label_parts(self.extra)])

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run."""
        return experiment_of(self.data, self.backbone, self.strategy, self.fidelity, seed, dict(self.extra))


def cell(data: str, backbone: str, strategy: str, fidelity: str, extra: Mapping[str, Any] | None = None) -> Cell:
    """Make a cell whose `extra` leaves out what the recipe says anyway, so that tables share the run.

    >>> cell("ml-100k", "fedmf", "f3crec", "released", {"rounds": 100, "aggregation.beta": 0.123}).extra
    (('aggregation.beta', 0.123),)
    """
    known = recipe(data, backbone, strategy, fidelity)
    changed = {key: value for key, value in (extra or {}).items() if key not in known or known[key] != value}
    return Cell(data, backbone, strategy, fidelity, tuple(sorted(changed.items())))


class Ask(cells.Ask):
    """This is what is asked for, and the cells under this request."""

    def cell(self, data: str, backbone: str, strategy: str, extra: Mapping[str, Any] | None = None) -> Cell:
        """Return a cell under this request; the request's own values go over `extra`."""
        return cell(data, backbone, strategy, self.fidelity, {**(extra or {}), **self.extra})

    def cells(self, data: str, backbone: str, strategies: Sequence[str]) -> dict[str, Cell]:
        """Return the cells of several strategies, by name."""
        return {strategy: self.cell(data, backbone, strategy) for strategy in strategies}


def recipe(data: str, backbone: str, strategy: str, fidelity: str) -> Values:
    """Return the values of all rules that match, later over earlier ones, without those the strategy does not read.

    >>> recipe("lastfm-2k", "fedmf", "ft", "released")["protocol.min_interactions"]
    5
    """
    names = dict(zip(_KEYS, (data, backbone, strategy, fidelity), strict=True))
    out: Values = {}
    for rule in _rules():
        if all(_matches(names[key], wanted, key) for key, wanted in rule.get("for", {}).items()):
            out |= rule["set"]
    return {key: value for key, value in out.items() if _reads(strategy, key)}


def _reads(name: str, key: str) -> bool:
    """Say whether a strategy reads a value of a rule.

    One for f3crec holds for ablations that lack the part it is about.
    """
    chosen = STRATEGIES.get(name)
    if chosen is None:  # refused with the nearest names, where the experiment is made
        return True
    if key == "aggregation.beta":
        return bool(chosen.server)
    section, _, own = key.partition(".")
    return section != "continual" or not readers(own) or name in readers(own)


def experiment_of(
    data: str, backbone: str, strategy: str, fidelity: str, seed: int, extra: Mapping[str, Any] | None = None
) -> Experiment:
    """Return the experiment of a recipe; of `extra`, what its strategy reads goes over it.

    Raises `InputError` for names and values that do not exist.

    >>> experiment_of("ml-100k", "fedmf", "f3crec", "released", seed=3).protocol.min_interactions
    10
    """
    values = recipe(data, backbone, strategy, fidelity)
    values |= {key: value for key, value in (extra or {}).items() if _reads(strategy, key)}
    named = {"name": "f3crec", "method": "f3crec", "fidelity": fidelity, "backbone": backbone, "strategy": strategy}
    chosen = named | values
    return load_experiment(overrides=[f"{key}={as_yaml(value)}" for key, value in chosen.items()], data=data, seed=seed)


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    text = files("edgefr.studies.reproductions.f3crec").joinpath("recipes.yaml").read_text("utf-8")
    return tuple(yaml.safe_load(text))


def _matches(name: str, wanted: str | list[str], key: str) -> bool:
    """Say whether a rule's `for` entry holds; f3crec speaks for its ablations."""
    listed = [wanted] if isinstance(wanted, str) else wanted
    return name in listed or (key == "strategy" and name.startswith("f3crec") and "f3crec" in listed)
