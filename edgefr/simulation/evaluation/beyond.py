"""These metrics look at the lists that are recommended, whoever finds something in them: whom they show, and what.

Each is measured where `evaluation.metrics` names it, on the lists of full ranking. Owns: lists, what is known of items,
and an entry per metric. Does not own: when they are measured (`edgefr.simulation.evaluation.measure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edge.word_vectors import WordEncoder
from edgefr.metrics.cutoffs import METRICS, Metric, Values
from edgefr.metrics.groups import by_group
from edgefr.simulation.evaluation.ranking import Scorer, columns, in_chunks, scored, users_at_once
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.data.interactions import Catalogue
    from edgefr.data.splits.split import Task

Ints = npt.NDArray[np.int64]
QUARTERS = 4
_WIDTH = 256
"""Values of an item's vector of hashed words."""


@dataclass(frozen=True)
class About:
    """This is what is known of items, by number: their texts and their categories, empty where nothing is."""

    texts: Sequence[str] = ()
    categories: Sequence[tuple[str, ...]] = ()

    @classmethod
    def of(cls, catalogue: Catalogue) -> About:
        """Take what a catalogue says."""
        return cls(catalogue.text if any(catalogue.text) else (), catalogue.categories)

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """Return hashed words of every item's text, of length 1, [items, f]: the same for every method."""
        return WordEncoder(_WIDTH).encode(self.texts)

    @cached_property
    def shares(self) -> Values:
        """Return each item's categories as shares of it, [items, categories]; a row of 0 for an item without any."""
        names = {name: at for at, name in enumerate(sorted({name for own in self.categories for name in own}))}
        out = np.zeros((len(self.categories), len(names)))
        for item, own in enumerate(self.categories):
            for name in own:
                out[item, names[name]] = 1 / len(own)
        return out

    def check(self, named: Sequence[str]) -> None:
        """Raise `InputError` for a metric that reads what is not known of these items."""
        for name in named:
            metric = METRICS[name]
            if isinstance(metric, ListMetric) and metric.reads and not getattr(self, metric.reads):
                others = ", ".join(other for other in METRICS if other != name and _known(self, METRICS[other]))
                raise InputError(
                    f"evaluation.metrics: {name} reads the {metric.reads} of items, and this data set has none; choose "
                    f"others ({others})"
                )


def _known(about: About, metric: Metric) -> bool:
    return not isinstance(metric, ListMetric) or not metric.reads or bool(getattr(about, metric.reads))


@dataclass(frozen=True)
class Listed:
    """These are lists of the k best items of users [n]: `items` int64 [n, k], best first, -1 where a list ends.

    `task` says what users train on, and the pool; `found`: the users' metrics of ranks at this k, by name.
    """

    k: int
    users: Ints
    items: Ints
    task: Task
    about: About
    found: Mapping[str, Values] = field(default_factory=dict)

    @cached_property
    def there(self) -> npt.NDArray[np.bool_]:
        """Say which places hold an item, bool [n, k]."""
        return self.items >= 0

    @cached_property
    def known_by(self) -> Values:
        """Return the share of users who train on an item, by its number; of an item of nobody, as of half a user."""
        train = self.task.train
        counts = np.bincount(train.values, minlength=int(self.task.pool[-1]) + 1).astype(np.float64)
        return np.maximum(counts, 0.5) / max(1, int((train.counts > 0).sum()))

    def mean(self, values: Values) -> Values:
        """Return the mean over each list of a value of every item, by its number; NaN for an empty list."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.there, values[self.items], 0.0).sum(axis=1) / self.there.sum(axis=1)


@dataclass(frozen=True)
class ListMetric(Metric):
    """This metric is made of lists: `of(listed)` is its value per user, float64 [n], or one number for all of them.

    A user of whom nothing can be said is NaN. `reads`: texts or categories, where it needs what is known of items.
    """

    of: Callable[[Listed], Values | float]
    named: bool = True
    reads: str = ""


def top_lists(score: Scorer, pool: npt.NDArray[np.integer], users: Ints, leave_out: Ragged, k: int) -> Ints:
    """Return the k best items of every user, int64 [n, k], best first, ties by number; -1 where there are fewer.

    Row i of `leave_out` holds items that are not recommended to ``users[i]``; nor are those with a NaN score.

    >>> top_lists(lambda users, items: np.array([[0.1, 0.9, 0.5]]), np.array([3, 5, 8]), np.array([7]),
    ...     Ragged.from_lists([[5]]), 3).tolist()
    [[8, 3, -1]]
    """
    out = np.full((len(users), k), -1, np.int64)
    width = min(k, len(pool))
    for start, stop in in_chunks(len(users), users_at_once(len(pool)), None):
        distance = -scored(score, users[start:stop], None, len(pool)).astype(np.float64)
        hidden = leave_out.take(np.arange(start, stop))
        at = columns(pool, hidden.values)
        distance[hidden.rows[at >= 0], at[at >= 0]] = np.inf
        distance[np.isnan(distance)] = np.inf
        border = np.partition(distance, width - 1, axis=1)[:, width - 1 : width]
        distance[distance > border] = np.inf
        best = np.argsort(distance, axis=1, kind="stable")[:, :width]
        items = np.asarray(pool)[best].astype(np.int64)
        out[start:stop, :width] = np.where(np.isinf(np.take_along_axis(distance, best, axis=1)), -1, items)
    return out


def _coverage(listed: Listed) -> float:
    return len(np.unique(listed.items[listed.there])) / len(listed.task.pool)


def _novelty(listed: Listed) -> Values:
    return listed.mean(-np.log2(listed.known_by))


def _diversity(listed: Listed) -> Values:
    vectors = listed.about.vectors
    count = listed.there.sum(axis=1)
    total, own = np.zeros((len(count), vectors.shape[1])), np.zeros(len(count))
    for place in range(listed.k):
        row = np.where(listed.there[:, place, None], vectors[listed.items[:, place]], 0.0)
        total += row
        own += (row * row).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = ((total * total).sum(axis=1) - own) / (count * (count - 1))
    return np.where(count > 1, 1.0 - alike, np.nan)


def _popularity(listed: Listed) -> Values:
    return listed.mean(listed.known_by)


def _popularity_lift(listed: Listed) -> float:
    profiles = listed.task.train.take(listed.users)
    held = profiles.counts > 0
    sums = np.bincount(profiles.rows, listed.known_by[profiles.values], len(profiles))
    of_lists = listed.mean(listed.known_by)
    held &= ~np.isnan(of_lists)
    if not held.any():
        return float("nan")
    return float(of_lists[held].mean() / (sums[held] / profiles.counts[held]).mean() - 1)


def _calibration(listed: Listed, alpha: float = 0.01) -> Values:
    shares = listed.about.shares
    profiles = listed.task.train.take(listed.users)
    wanted = np.zeros((len(profiles), shares.shape[1]))
    np.add.at(wanted, profiles.rows, shares[profiles.values])
    given = sum(np.where(listed.there[:, at, None], shares[listed.items[:, at]], 0.0) for at in range(listed.k))
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = (of / of.sum(axis=1, keepdims=True) for of in (wanted, np.asarray(given)))
        q = (1 - alpha) * q + alpha * p
        return np.where(p > 0, p * np.log(p / q), np.where(np.isnan(p + q), np.nan, 0.0)).sum(axis=1)


def _fairness_gap(listed: Listed) -> float:
    activity = listed.task.train.counts[listed.users]
    order = np.argsort(activity, kind="stable")
    quarter = np.empty(len(order), np.int64)
    quarter[order] = np.arange(len(order)) * QUARTERS // max(1, len(order))
    means = by_group(listed.found["NDCG"], quarter, QUARTERS).mean
    return float(np.nanmax(means) - np.nanmin(means)) if np.isfinite(means).any() else float("nan")


# The share of the pool that is in anybody's list (Ge et al., 2010); it grows with the users who are asked.
METRICS.register(ListMetric("Coverage", _coverage))
# How many bits it would take to say which items were shown, by who knows them (Zhou et al., 2010).
METRICS.register(ListMetric("Novelty", _novelty))
# The mean distance of two items of a list, 1 - cosine of hashed words of their texts (Ziegler et al., 2005).
METRICS.register(ListMetric("Diversity", _diversity, reads="texts"))
# The mean share of users who know an item of the list (Yin et al., 2012).
METRICS.register(ListMetric("Popularity", _popularity))
# By what share lists are more popular than what their users train on: Delta GAP (Abdollahpouri et al., 2019).
METRICS.register(ListMetric("PopularityLift", _popularity_lift))
# KL divergence of a list's categories from those of what the user trains on, smoothed by .01 (Steck, 2018); 0 is best.
METRICS.register(ListMetric("Calibration", _calibration, reads="categories"))
# NDCG of the quarter of users, by how much they train on, that has most of it less that of the one that has least;
# the gap between device classes stands in every summary (`fleet.fairness`). After Li et al. (WWW 2021).
METRICS.register(ListMetric("FairnessGap", _fairness_gap))
