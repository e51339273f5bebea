"""Rounds of a client whose small update is known are played on a channel, and what was noise in them is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgefr.studies.audits.canaries import Bools, Canary, Channel, Floats
from privacy import keyed
from privacy.noise_tests import Law

VALUES, FEWEST, MOST = 30_000, 6, 48
"""Values of noise that are wanted, and how many rounds are played for them at least and at most."""
CHANGED = 4
"""Rows of a table that a planted client changes."""


@dataclass(frozen=True)
class MeasuredChance:
    """This is what one measurement saw: a `figure` of `what`, and the `chance` of one so bad if all is right."""

    what: str
    figure: float
    chance: float


class CanaryRounds:
    """These are rounds of a client with a known small update, on one channel; what was noise in them is kept."""

    def __init__(self, channel: Channel, seed: int = 0):
        self.channel, self.seed = channel, seed
        self.small = planted(channel, seed, (channel.clip or 1.0) / 8.0)
        size = channel.projects or sum(spec.size for spec in channel.specs.values())
        self.rounds = range(1, 1 + max(FEWEST, min(MOST, math.ceil(VALUES / size))))

    @cached_property
    def noise(self) -> dict[str, Floats]:
        """Return the noise of all rounds by tensor, [rounds, values]."""
        each = [self.channel.noise(self.small, number) for number in self.rounds]
        return {name: np.stack([found[name].ravel() for found in each]) for name in each[0]}

    @property
    def law(self) -> Law:
        """Return the law of the noise, where there is any."""
        assert self.channel.law is not None
        return self.channel.law

    def parts(self) -> list[tuple[str, Floats]]:
        """Return the noise of every tensor, that of a table's changed rows and of its others apart."""
        out = []
        for name, values in self.noise.items():
            changed = self._changed(name)
            if changed is None:
                out.append((name, values))
            else:
                out += [(f"{name}, rows changed", values[:, changed]), (f"{name}, other rows", values[:, ~changed])]
        return [(name, values) for name, values in out if values.size]

    def _changed(self, name: str) -> Bools | None:
        if name not in self.small.rows:
            return None
        rows, width = self.channel.specs[name].shape
        found = np.zeros(rows, np.bool_)
        found[self.small.rows[name][0]] = True
        return np.repeat(found, width)


def planted(channel: Channel, seed: int, norm: float, dense: bool = True, rows: bool = True) -> Canary:
    """Make an update of this joint norm, on the grid: keyed signs on the dense tensors, on some rows of the tables."""
    values: dict[str, Floats] = {}
    items = {}
    for name, spec in channel.specs.items():
        if spec.kind == "dense" and dense:
            values[name] = _signs(seed, name, spec.shape)
        if spec.kind == "rows" and rows:
            chosen = keyed.choose(keyed.key(seed, "rows"), np.arange(spec.shape[0]), min(CHANGED, spec.shape[0]))
            items[name] = np.sort(chosen)
            values[name] = _signs(seed, name, (len(chosen), spec.shape[1]))
    count = sum(value.size for value in values.values())
    size = norm / max(1.0, count if channel.norm == "l1" else math.sqrt(count))
    step = None if channel.law is None else channel.law.step
    size = size if step is None else math.floor(size / step) * step
    return Canary(
        {name: size * value for name, value in values.items() if name not in items},
        {name: (items[name], size * values[name]) for name in items},
    )


def _signs(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    drawn = keyed.integers(keyed.key(seed, f"planted {name}"), np.arange(math.prod(shape)), 2)
    return np.where(drawn.reshape(shape) == 1, 1.0, -1.0)
