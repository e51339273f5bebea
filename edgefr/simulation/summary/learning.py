"""This report says whether learning helped: a learned model beside all that needs no learning, user by user.

A learned model is compared with the same model before any round, with chance and with every reference on the same
users. Learning helped where it is better than each of them by more than chance: a model that beats itself untrained
but not popularity has learned what a count would have said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.config import random_streams as purposes
from edgefr.metrics.bootstrap import LEVEL, intervals
from edgefr.metrics.settings import UNLEARNED, UNLEARNED_IN_CONTEXT
from edgefr.report.verdict import RANKINGS, Verdict
from privacy import keyed

if TYPE_CHECKING:
    from edgefr.simulation.evaluation.measure import Measurements

UNTRAINED = (UNLEARNED, UNLEARNED_IN_CONTEXT)


@dataclass(frozen=True)
class Against:
    """This is one comparison: what `name` reaches, and how much better the learned model is, with its interval."""

    name: str
    value: float
    difference: float
    low: float
    high: float

    @property
    def beaten(self) -> bool:
        """Say whether the learned model is better by more than chance; not where too few users were asked."""
        return self.low > 0

    @property
    def said(self) -> str:
        """Return the name as a sentence has it."""
        return f"the same model {self.name}" if self.name in UNTRAINED else self.name

    def __str__(self) -> str:
        return f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True)
class Learning:
    """This is what a learned `stage` reaches in a metric, over `users`, beside all that needs no learning.

    `rounds` are behind it, or epochs.
    """

    stage: str
    metric: str
    ranking: str
    users: int
    value: float
    against: tuple[Against, ...]
    rounds: int

    @property
    def learned(self) -> bool:
        """Say whether anything was learned: in rounds, or in local training that left another model than before."""
        own = [other for other in self.against if other.name in UNTRAINED]
        return self.rounds > 0 or all(other.difference for other in own)

    @property
    def helped(self) -> bool:
        """Say whether the stage is better than everything that needs no learning, by more than chance."""
        return self.learned and bool(self.against) and all(other.beaten for other in self.against)

    @property
    def known(self) -> bool:
        """Say whether anything can be said: it was compared, and enough users were asked for an interval."""
        return any(np.isfinite(other.low) for other in self.against)

    def __str__(self) -> str:
        what = f"{self.metric} {self.value:.4f} ({RANKINGS[self.ranking]}, {self.users:,} users)"
        return f"{self.stage}: {self.words}: {what}{self._beside()}"

    @property
    def words(self) -> str:
        """Return the verdict in a few words, the same wherever the run is told of."""
        return Verdict.of("main", self.stage, self.record()).words

    def _beside(self) -> str:
        """Say what is not beaten, and whether the model is better than before any round; or the best that is beaten."""
        if not self.learned:
            return " is that of the model as it begins"
        if not self.known:
            return ""
        if self.helped:
            best = max(self.against, key=lambda other: other.value)
            return f", {best} over {best.said}, the best without learning"
        lines = [f"{other} against {other.said}" for other in self.against if not other.beaten]
        own = [f"{other} over {other.said}" for other in self.against if other.beaten and other.name in UNTRAINED]
        return f" is {', '.join(lines)}{''.join(f', but {line}' for line in own)}"

    def record(self) -> dict[str, Any]:
        """Return it as values of a summary; ends of an interval are null where too few users were asked."""
        return {
            "learned": self.learned,
            "helped": self.helped,
            "metric": self.metric,
            "ranking": self.ranking,
            "users": self.users,
            "value": self.value,
            "level": LEVEL,
            "against": {other.name: _differences(other) for other in self.against},
        }


def _differences(other: Against) -> dict[str, float | None]:
    """Return a comparison's value, difference and interval, without NaN."""
    found = {"value": other.value, "difference": other.difference, "low": other.low, "high": other.high}
    return {name: float(value) if np.isfinite(value) else None for name, value in found.items()}


def learning(
    measured: Measurements, stage: str, names: Sequence[str], on: Sequence[str], rounds: int = 1
) -> Learning | None:
    """Compare a learned stage with everything named, on the held-out items of `on` (blocks: averaged over them).

    `rounds` are behind it. Full ranking decides where users were ranked against the whole catalogue. Returns None where
    nobody was asked, or there is nothing to compare with.
    """
    ranking = "full" if (stage, on[-1], "full") in measured.users else "sampled"
    found = [measured.users[stage, name, ranking] for name in on]
    if not all(len(users) for users, _ in found):
        return None
    metric = next(name for name in found[0][1] if name.startswith("NDCG"))
    others = [n for n in names if all((n, name, ranking) in measured.users for name in on)]
    if not others:
        return None
    values = [np.stack([measured.users[n, name, ranking][1][metric] for n in others], axis=1) for name in on]
    parts = [(u, of[metric][:, None] - other) for (u, of), other in zip(found, values, strict=True)]
    generator = keyed.generator(measured.seed, purposes.BOOTSTRAP)
    apart, means = intervals(parts, generator), np.mean([other.mean(axis=0) for other in values], axis=0)
    return Learning(
        stage,
        metric,
        ranking,
        len(np.unique(np.concatenate([users for users, _ in found]))),
        float(np.mean([of[metric].mean() for _, of in found])),
        tuple(
            Against(name, *map(float, row))
            for name, row in zip(others, np.stack([means, apart.mean, apart.low, apart.high], axis=1), strict=True)
        ),
        rounds,
    )
