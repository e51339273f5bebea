"""Measuring a continual run: every model after block t on the held-out items of blocks s <= t, by full ranking."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edge.ragged import Ragged
from edgefr.data.blocks import Block
from edgefr.engine.scoring import ModelScorer
from edgefr.measure import joined
from edgefr.methods.program import LocalProgram, Tensors
from edgefr.metrics import Scorer
from edgefr.metrics.continual import MASKS as MASKS
from edgefr.metrics.continual import Masks
from edgefr.metrics.lists import rank_lists
from edgefr.sections import EvaluationSection
from privacy import keyed

Tested = tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]
"""Users [n] and their test metrics, float64 [n] each."""


@dataclass
class BlockMeasurements:
    """Metric rows in the order they were made; one per (after, on, stage, mask, group, metric).

    `after` and `on` are blocks: the model after the one, asked for the held-out items of the other. `last`, by stage:
    users and their metrics (mask: as released) of the newest test of a block right after it.
    """

    settings: EvaluationSection
    seed: int
    items: int
    device: torch.device
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    last: dict[str, Tested] = field(default_factory=dict)

    def scorer(self, program: LocalProgram, shared: Tensors, private: Tensors, block: Block) -> Scorer:
        """Scores of a model's tensors for every item that exists in a block."""
        used = {name for phase in program.phases for name in phase.uses}
        private = {name: value for name, value in private.items() if name in used}
        return ModelScorer(program, shared, private, block.train, block.pool, self.items, self.device)

    def valid(self, block: Block, score: Scorer, round_: int) -> dict[str, float]:
        """A point of the learning curve: validation items of the block, on a keyed sample of its users."""
        started = time.perf_counter()
        users = self._sample(block.users("valid"), self.settings.curve_users, "curve users")
        found = rank_lists(score, block.pool, users, block.valid.take(users), block.train.take(users), self.settings.k)
        means = {name: float(np.mean(values)) if len(values) else float("nan") for name, values in found.items()}
        head = {"after": block.name, "on": block.name, "round": round_, "stage": "model", "which": "valid"}
        self.rows += [
            {**head, "mask": "as released", "group": "all", "metric": m, "value": v, "users": len(users)}
            for m, v in means.items()
        ]
        self.seconds += time.perf_counter() - started
        return means

    def test(self, stage: str, score: Scorer, after: Block, on: Block) -> None:
        """A model (or a reference) after one block on the test items of it or of an earlier one, under both masks."""
        started = time.perf_counter()
        users = self._sample(on.users("test"), self.settings.full_ranking_users, f"test users {on.name}")
        current = joined(after.train.take(users), after.valid.take(users))
        known = on.known[users]
        for mask in MASKS:
            hidden = current if mask == "as released" else joined(after.past.take(users), current)
            found = rank_lists(score, after.pool, users, on.test.take(users), hidden, self.settings.k)
            if mask == "as released" and after is on:
                self.last[stage] = users, found
            groups = {"all": np.ones(len(users), np.bool_)} | ({"known": known, "new": ~known} if on.number else {})
            for group, members in groups.items():
                self._add(stage, after, on, mask, group, found, members)
        self.seconds += time.perf_counter() - started

    def _add(
        self,
        stage: str,
        after: Block,
        on: Block,
        mask: Masks,
        group: str,
        found: dict[str, npt.NDArray[np.float64]],
        members: npt.NDArray[np.bool_],
    ) -> None:
        head = {"after": after.name, "on": on.name, "round": None, "stage": stage, "which": "test"}
        number = int(members.sum())
        self.rows += [
            {
                **head,
                "mask": mask,
                "group": group,
                "metric": metric,
                "value": float(values[members].mean()) if number else float("nan"),
                "users": number,
            }
            for metric, values in found.items()
        ]

    def _sample(self, users: npt.NDArray[np.int64], size: int, purpose: str) -> npt.NDArray[np.int64]:
        return keyed.choose(keyed.key(self.seed, purpose), users, size)

    def found(self, stage: str, after: str, on: str, mask: str = "as released", group: str = "all") -> dict[str, float]:
        """Final metrics of one cell by name."""
        wanted = {"stage": stage, "after": after, "on": on, "mask": mask, "group": group, "which": "test"}
        return {r["metric"]: r["value"] for r in self.rows if all(r[key] == value for key, value in wanted.items())}

    def matrix(self, stage: str, blocks: int, metric: str, mask: str = "as released") -> list[list[float]]:
        """a(t, s) for s <= t: row t holds the model after block t on blocks 0..t."""
        return [
            [self.found(stage, f"D{t}", f"D{s}", mask).get(metric, float("nan")) for s in range(t + 1)]
            for t in range(blocks)
        ]


def seen(block: Block) -> Ragged:
    """Training items of a block and everything before it, for references that know the past."""
    return joined(block.past, block.train)
