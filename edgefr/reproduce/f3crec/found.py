"""What finished runs found, by cell and seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgefr.metrics.significance import paired_t
from edgefr.report.pages import Spread
from edgefr.reproduce.f3crec.recipes import Cell
from edgefr.run import Run

Summary = Mapping[str, Any]
Pick = Callable[[Summary], float]
BySeed = dict[int, float]

LABELS = {
    "ft": "FT",
    "reg": "Reg",
    "kd": "KD",
    "rlp2": "RLP2",
    "spp": "SPP",
    "f3crec": "F3CRec",
    "f3crec-no-client": "w/o c.c",
    "f3crec-no-adaptive": "w/o a.r.m",
    "f3crec-no-server": "w/o s.c",
    "f3crec-no-itemwise": "w/o i.t.m",
    "fedmf": "FedMF",
    "fedncf": "FedNCF",
    "pfedrec": "PFedRec",
}
"""Names of strategies and backbones as the paper prints them."""


@dataclass(frozen=True)
class Found:
    """Summaries, and folders, of finished runs: {cell: {seed: ...}}."""

    summaries: Mapping[Cell, Mapping[int, Summary]]
    runs: Mapping[Cell, Mapping[int, Run]] = field(default_factory=dict)

    def by_seed(self, cell: Cell, pick: Pick) -> BySeed:
        """One value per finished seed."""
        return {seed: pick(summary) for seed, summary in self.summaries.get(cell, {}).items()}

    def spread(self, cell: Cell, pick: Pick) -> Spread:
        """Mean and standard deviation over the finished seeds."""
        return Spread.of(list(self.by_seed(cell, pick).values()))


def average(metric: str) -> Pick:
    """The mean over the increments D1 to D3 under the mask of the released code."""
    return lambda summary: summary["metrics"][metric]


def average_history(metric: str) -> Pick:
    """The same with everything masked that the user has had in earlier blocks."""
    return lambda summary: summary["metrics_history_masked"][metric]


def kept(name: str, mask: str) -> Pick:
    """LA, RA or forgetting of NDCG@20 over all blocks, D0 included (`edgefr.metrics.continual`)."""
    return lambda summary: summary["continual"][mask][name]


def on_block(number: int, metric: str) -> Pick:
    """Right after block D<number>, on its test items."""
    return lambda summary: summary["blocks"][number]["metrics"][metric]


def average_group(group: str, metric: str) -> Pick:
    """`known_users` or `new_users` alone: the mean over the increments where there are any."""

    def pick(summary: Summary) -> float:
        values = [block[group].get(metric) for block in summary["blocks"][1:]]
        known = [value for value in values if value is not None and not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan

    return pick


def reference(name: str, metric: str, mask: str, block: int | None = None) -> Pick:
    """What a reference without learning reaches: on one block, or the mean over the increments."""
    if block is None:
        return lambda summary: summary["references"][name][mask][metric]
    return lambda summary: summary["blocks"][block]["references"][name][mask][metric]


def change(value: BySeed, of: BySeed) -> float:
    """By how many % the mean of `value` is above that of `of`, over the seeds that both have; NaN without any.

    >>> round(change({0: 0.09, 1: 0.11}, {0: 0.08, 1: 0.08, 2: 0.5}), 9)
    25.0
    """
    shared = sorted(value.keys() & of.keys())
    below = sum(of[seed] for seed in shared)
    return 100 * (sum(value[seed] for seed in shared) / below - 1) if below else math.nan


def p_value(one: BySeed, two: BySeed) -> float:
    """p of the paired t-test, two-sided; a pair is one seed's two values. NaN for fewer than two pairs.

    >>> p_value({0: 0.1}, {0: 0.2})
    nan
    """
    shared = sorted(one.keys() & two.keys())
    return paired_t([one[seed] for seed in shared], [two[seed] for seed in shared])
