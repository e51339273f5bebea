"""Hyper-parameters of the tables' experiments: `recipes.yaml`, rules from the general to the special."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from edgefr.config.packaged_files import shipped
from edgefr.experiment.continual import STRATEGIES, readers
from edgefr.experiment.experiment import Experiment
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values
from edgefr.studies.reproductions.published import FOLDER, specification

LABELS: Mapping[str, str] = specification("f3crec")["labels"]
_KEYS = ("data", "backbone", "strategy", "fidelity")


class F3CRecCell(cells.Cell):
    """A cell has a strategy for its row, within a backbone.

    >>> F3CRecCell("ml-100k", "f3crec", "fedmf", "released").label
    'ml-100k_released_fedmf_f3crec'
    """

    LABELS = LABELS

    @property
    def backbone(self) -> str:
        """Return its backbone."""
        return self.within

    @property
    def values(self) -> Values:
        """Return the recipe's values, and what goes over them."""
        return recipe(self.data, self.within, self.row, self.fidelity) | dict(self.extra)

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment of the recipe, under what its strategy reads of `extra`; `InputError` where unknown."""
        read = {key: value for key, value in self.values.items() if _reads(self.row, key)}
        named = {"method": "f3crec", "fidelity": self.fidelity, "backbone": self.within, "strategy": self.row}
        return self.loaded({"name": "f3crec", **named, **read}, seed)


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
    """Say whether a strategy reads a value of a rule; one for f3crec holds for ablations that lack the part."""
    chosen = STRATEGIES.get(name)
    if chosen is None:  # refused with the nearest names, where the experiment is made
        return True
    if key == "aggregation.beta":
        return bool(chosen.server)
    section, _, own = key.partition(".")
    return section != "continual" or not readers(own) or name in readers(own)


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load(shipped(FOLDER / "f3crec" / "recipes.yaml").read_text(encoding="utf-8")))


def _matches(name: str, wanted: str | list[str], key: str) -> bool:
    listed = [wanted] if isinstance(wanted, str) else wanted
    return name in listed or (key == "strategy" and name.startswith("f3crec") and "f3crec" in listed)
