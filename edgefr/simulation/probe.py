"""A probe says in seconds whether a data set's texts carry, or ids alone do: three scorers on validation items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefr.data.interactions import Dataset
from edgefr.data.splits.split import Split
from edgefr.metrics.settings import ITEM_KNN
from edgefr.simulation.encoders.words import tfidf_vectors
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ceilings import ceilings
from edgefr.simulation.evaluation.ranking import Scorer, evaluate

METRIC = "NDCG@10"
MOST_USERS = 500
"""Users whose validation items are asked for, evenly spaced among all."""
NEAR, HALF = 0.8, 0.5
"""Texts carry where they reach this share of what item-kNN does: above popularity half, and else most of it."""


@dataclass(frozen=True)
class Probe:
    """These are NDCG@10 of full ranking on validation items of so many `users`; None: it could not be computed."""

    users: int
    text: float | None
    popularity: float
    knn: float | None

    @property
    def texts_carry(self) -> bool:
        """Say whether texts alone beat popularity without being far below item-kNN, or come near to item-kNN."""
        if self.text is None:
            return False
        knn = self.knn or 0.0
        beats = self.text > self.popularity and self.text >= HALF * knn
        return beats or self.text >= NEAR * knn > 0

    def __str__(self) -> str:
        shown = {"text mean (TF-IDF)": self.text, "popularity": self.popularity, ITEM_KNN: self.knn}
        figures = ", ".join(f"{name} {value:.4f}" for name, value in shown.items() if value is not None)
        says = "" if self.text is None else "; texts carry" if self.texts_carry else "; texts say less than ids"
        return f"{METRIC}, full ranking, validation items of {self.users:,} users: {figures}{says}"


def most_have_text(dataset: Dataset) -> bool:
    """Say whether more than half of the items have a text."""
    return sum(map(bool, dataset.catalogue.text)) > len(dataset.catalogue) / 2


def probe(dataset: Dataset, split: Split) -> Probe:
    """Rank the validation items of a split's users by texts, by popularity and by item-kNN; nothing is learned.

    Texts are asked where most items have one.

    >>> from edgefr.data.datasets import load
    >>> from edgefr.data.splits.leave_one_out import LeaveOneOut
    >>> demo = load("demo", options={"users": 50, "items": 160})
    >>> probe(demo, *LeaveOneOut().apply(demo, 0)).texts_carry
    True
    """
    everyone = split.users("valid")
    users = everyone[np.unique(np.linspace(0, len(everyone) - 1, min(len(everyone), MOST_USERS)).astype(np.int64))]

    def worth(score: Scorer | None) -> float | None:
        return None if score is None else evaluate(score, split, "valid", "full", users=users).metrics([10])[METRIC]

    vectors = tfidf_vectors(dataset.catalogue.text) if most_have_text(dataset) else None
    text = worth(None if vectors is None else references.text_mean(vectors, split))
    knn = worth(ceilings(split, split.train, split.train, only=(ITEM_KNN,)).get(ITEM_KNN))
    return Probe(len(users), text, worth(references.popularity(split)) or 0.0, knn)
