"""Runs that differ in their seed alone are one group: one row, one colour, a mean with its deviation and its points."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edgefr.config.sheet import count
from edgefr.report.bundles import leaves
from edgefr.report.pages import Spread
from edgefr.report.verdict import Verdict, every_verdict
from edgefr.report.web.facts import Facts

APART = ("seed", "name")
"""Fields in which the runs of a group may differ."""


@dataclass(frozen=True)
class RunGroup:
    """A group has runs of one experiment by their names, in the colour of its number."""

    name: str
    color: int
    runs: tuple[Facts, ...]
    names: tuple[str, ...]

    @property
    def first(self) -> Facts:
        """Return the run that speaks for what all have in common."""
        return self.runs[0]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of the runs."""
        return [facts.summary for facts in self.runs]

    @property
    def verdicts(self) -> list[Verdict]:
        """Return what learning came to in each run; a run without a comparison has none."""
        found = (next(iter(every_verdict(summary)), None) for summary in self.summaries)
        return [one for one in found if one is not None]

    @property
    def seeds(self) -> str:
        """Say which seeds the runs have."""
        seeds = [summary["seed"] for summary in self.summaries]
        return f"seed {seeds[0]}" if len(seeds) == 1 else count(len(seeds), "seed")


def groups_of(every: Sequence[Facts]) -> list[RunGroup]:
    """Return runs by their experiment, in the order they are given."""
    names, found = names_of(every), dict[tuple[Any, ...], list[int]]()
    for at, facts in enumerate(every):
        found.setdefault(tuple(one for one in settings(facts).items() if one[0] not in APART), []).append(at)
    together = [names[own[0]] if len(own) == 1 else _above([every[at] for at in own]) for own in found.values()]
    told = [
        name if together.count(name) == 1 else f"{every[own[0]].title} ({number})"
        for number, (name, own) in enumerate(zip(together, found.values(), strict=True), 1)
    ]
    return [
        RunGroup(name, color, tuple(every[at] for at in own), tuple(names[at] for at in own))
        for color, (name, own) in enumerate(zip(told, found.values(), strict=True))
    ]


def names_of(every: Sequence[Facts]) -> list[str]:
    """Return names that tell the runs apart: of their folders, with the folders above where these are the same."""
    for depth in range(1, 6):
        names = ["/".join(facts.path.resolve().parts[-depth:]) for facts in every]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({place})" for place, name in enumerate(names, 1)]


def settings(facts: Facts) -> dict[str, str]:
    """Return every field of a run's experiment with its value in words."""
    return {field: _text(value) for field, value in leaves("", yaml.safe_load(facts.experiment))}


def spread(values: Sequence[float], sign: str = "") -> str:
    """Write a mean with its deviation, where several runs have one."""
    found = Spread.of(values)
    return f"{found.mean:{sign}.4f}" + ("" if found.number < 2 else f" ± {found.sd:.4f}")


def _above(runs: Sequence[Facts]) -> str:
    """Return the name of the folder that holds the runs of a group and nothing but them, or their method and data."""
    parents = {facts.path.resolve().parent for facts in runs}
    return Path(os.path.commonpath(parents)).name if len(parents) == 1 else runs[0].title


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
