"""Measuring a run: every stage of the model and every reference, on the same users, candidates and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from edge.ragged import Ragged
from edgefr.data.protocols import Split
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import Table
from edgefr.methods.program import LocalProgram, Tensors
from edgefr.metrics import Ranking, Scorer, evaluate, references
from edgefr.prepare import Text
from edgefr.sections import EvaluationSection
from privacy import keyed

Progress = Callable[[str, int, int, str], None]
Which = Literal["valid", "test"]


def joined(first: Ragged, second: Ragged) -> Ragged:
    """Row by row, the values of `first` followed by those of `second`."""
    values = np.empty(len(first.values) + len(second.values), np.result_type(first.values, second.values))
    # A value moves by what the other table has before it: of the rows above, and for `second` of its own row too.
    values[np.arange(len(first.values)) + np.repeat(second.offsets[:-1], first.counts)] = first.values
    values[np.arange(len(second.values)) + np.repeat(first.offsets[1:], second.counts)] = second.values
    return Ragged(values, first.offsets + second.offsets)


@dataclass
class Measurements:
    """Metric rows in the order they were made; one row per round, split, stage, ranking and metric."""

    settings: EvaluationSection
    seed: int
    items: int
    device: torch.device
    rows: list[dict[str, Any]] = field(default_factory=list)
    ranks: dict[tuple[str, str, str], npt.NDArray[np.int64]] = field(default_factory=dict)
    seconds: float = 0.0

    def sample(self, users: npt.NDArray[np.int64], size: int, purpose: str) -> npt.NDArray[np.int64]:
        """A keyed sample of users (all of them if there are no more than `size`)."""
        return keyed.choose(keyed.key(self.seed, purpose), users, size)

    def scorer(
        self,
        program: LocalProgram,
        shared: Tensors,
        private: Tensors,
        context: Ragged,
        split: Split,
        tables: Mapping[str, Table] | None = None,
    ) -> Scorer:
        """Scores of a model's tensors on a split; `tables` are the clients' own rows, where the program has some."""
        return ModelScorer(program, shared, private, context, split.pool, self.items, self.device, tables=tables)

    def add(
        self, stage: str, split: Split, score: Scorer, which: Which, round_: int | None, full: bool = True
    ) -> dict[str, float]:
        """Measure one stage; returns the metrics on sampled candidates. `round_` None: after the last round."""
        started = time.perf_counter()
        users = split.users(which)
        if round_ is not None:
            users = self.sample(users, self.settings.curve_users, "curve users")
        out = self._rank(stage, split, score, which, "sampled", users, round_)
        if full and self.settings.full_ranking_users:
            users = self.sample(split.users(which), self.settings.full_ranking_users, "full ranking users")
            self._rank(stage, split, score, which, "full", users, round_)
        self.seconds += time.perf_counter() - started
        return out

    def tested(self, split: Split, stage: str) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]:
        """Users of a split [n] and their final test metrics on sampled candidates, float64 [n] each."""
        users, ranks = split.users("test"), self.ranks[split.name, stage, "sampled"]
        return users, Ranking(users, ranks).per_user(self.settings.k)

    def _rank(
        self,
        stage: str,
        split: Split,
        score: Scorer,
        which: Which,
        ranking: Literal["sampled", "full"],
        users: npt.NDArray[np.int64],
        round_: int | None,
    ) -> dict[str, float]:
        ranked = evaluate(score, split, which, ranking, users=users)
        if which == "test":
            self.ranks[split.name, stage, ranking] = ranked.ranks
        found = ranked.metrics(self.settings.k)
        common = {"round": round_, "split": split.name, "stage": stage, "which": which, "ranking": ranking}
        self.rows += [{**common, "metric": m, "value": v, "users": len(users)} for m, v in found.items()]
        return found

    def table(self, which: Which = "test", ranking: str = "sampled") -> dict[str, dict[str, dict[str, float]]]:
        """Final metrics as {split: {stage: {metric: value}}}, in the order they were measured."""
        out: dict[str, dict[str, dict[str, float]]] = {}
        for row in self.rows:
            if row["round"] is None and row["which"] == which and row["ranking"] == ranking:
                out.setdefault(row["split"], {}).setdefault(row["stage"], {})[row["metric"]] = row["value"]
        return out


def reference_scorers(split: Split, text: Text | None, seed: int) -> dict[str, Scorer]:
    """References that need no learning. In a target domain popularity and text mean know what cold start may not."""
    out = {"popularity": references.popularity(split), "chance": references.random(seed, split)}
    if text is not None:
        out["text mean"] = references.text_mean(text.vectors, split)
        if split.name == "target":
            out["text mean, cold"] = references.text_mean(text.vectors, split, train=False)
    return out


def verdicts(table: dict[str, dict[str, float]], stages: list[str], metric: str, names: list[str]) -> list[str]:
    """Plain sentences: which stage beats which reference, and which does not."""
    out = []
    for stage in stages:
        for name in names:
            model, reference = table[stage][metric], table[name][metric]
            relation = "beats" if model > reference else "does NOT beat"
            out.append(f"{stage} {relation} {name}: {metric} {model:.4f} against {reference:.4f}")
    return out
