"""Metrics at a cut-off k are registered objects, each with its formula; all are made of the ranks of held-out items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from privacy.errors import InputError
from privacy.table import Table

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """This is what lists of length k found, per row of held-out items, [n] each: what a metric is made of.

    `hits`: held-out items within the k best; `dcg`: their gains, 1 / log2(1 + rank), added up; `counts`: held-out items
    (at least 1: rows without any are NaN whatever a metric says); `ideal`: the largest DCG that min(k, counts) hits
    can reach.
    """

    k: int
    hits: npt.NDArray[np.int64]
    dcg: Values
    counts: npt.NDArray[np.int64]
    ideal: Values


@dataclass(frozen=True)
class Metric:
    """A metric has a name, which is written with its cut-off ("NDCG@10"); `of` is its value per row, float64 [n]."""

    name: str
    of: Callable[[Found], Values]


METRICS: Table[Metric] = Table("metric", Metric, group="edgefr.metrics")
"""What is measured, in the order in which it is written."""

METRICS.register(Metric("HR", lambda found: np.where(found.hits > 0, 1.0, 0.0)))
METRICS.register(Metric("NDCG", lambda found: found.dcg / found.ideal))
METRICS.register(Metric("Recall", lambda found: found.hits / found.counts))


def metrics_at(ks: Sequence[int]) -> list[str]:
    """Return the names of all that is measured at these cut-offs.

    >>> metrics_at([10])
    ['HR@10', 'NDCG@10', 'Recall@10']
    """
    return [f"{name}@{k}" for k in ks for name in METRICS]


def at_cutoffs(ranks: Ragged, ks: Sequence[int]) -> dict[str, Values]:
    """Return every metric at every k per row from the ranks (1 is best) of its held-out items, float64 [n].

    NDCG divides by the best DCG that min(k, held-out items) hits can reach, Recall by the number of held-out items
    (F3CRec §5.1). Rows without held-out items are NaN. Raises `InputError` for cut-offs that are not whole or below 1.

    >>> at_cutoffs(Ragged.from_lists([[1, 30]], np.int64), [20])["Recall@20"].tolist()
    [0.5]
    """
    check_cutoffs(ks)
    counts, rows, n = ranks.counts, ranks.rows, len(ranks)
    gain = 1.0 / np.log2(1.0 + ranks.values)
    best = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, 2 + max(ks))))])  # best DCG by hits
    some = np.where(counts > 0, 1.0, np.nan)
    out: dict[str, Values] = {}
    for k in ks:
        inside = ranks.values <= k
        hits = np.bincount(rows[inside], minlength=n)
        dcg = np.bincount(rows[inside], weights=gain[inside], minlength=n).astype(np.float64, copy=False)
        ideal = np.maximum(best[np.minimum(counts, k)], best[1])
        found = Found(k, hits, dcg, np.maximum(counts, 1), ideal)
        out |= {f"{name}@{k}": metric.of(found) * some for name, metric in METRICS.items()}
    return out


def check_cutoffs(ks: Sequence[int]) -> None:
    """Raise `InputError` unless every k is a whole number of at least 1."""
    if not len(ks) or any(int(k) != k or k < 1 for k in ks):
        raise InputError(f"metrics need whole cut-offs k of at least 1, for example [10, 20]; got {list(ks)}")
