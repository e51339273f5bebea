"""Metrics at a cut-off k are registered objects, each with its formula, made of the ranks of held-out items.

Metrics of recommended lists are in `edgefr.simulation.evaluation.beyond`, in the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from privacy.errors import InputError
from privacy.table import Table

MAIN = "NDCG"
"""What tables show first: with full ranking where that was measured."""
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """These are hits of lists of length k, per row of held-out items [n], which metrics are made of.

    `hits`: held-out items within the k best; `dcg`: their summed gains, 1 / log2(1 + rank); `counts`: held-out items
    (at least 1: empty rows are NaN for every metric); `ideal`: the largest DCG of min(k, counts) hits. `ranks`: of
    every held-out item, 1 is best.
    """

    k: int
    hits: npt.NDArray[np.int64]
    dcg: Values
    counts: npt.NDArray[np.int64]
    ideal: Values
    ranks: Ragged

    def sums(self, values: Values) -> Values:
        """Return, by row, the sums of a value of held-out items within the k best."""
        inside = self.ranks.values <= self.k
        return np.bincount(self.ranks.rows[inside], values[inside], len(self.ranks)).astype(np.float64, copy=False)

    @cached_property
    def first(self) -> Values:
        """Return the rank of the best held-out item, inf where none is within the k best."""
        out = np.full(len(self.ranks), np.inf)
        inside = self.ranks.values <= self.k
        np.minimum.at(out, self.ranks.rows[inside], self.ranks.values[inside])
        return out

    @cached_property
    def precisions(self) -> Values:
        """Return for every held-out item the precision of the list that ends with it."""
        row, rank = self.ranks.rows, self.ranks.values
        order = np.lexsort((rank, row))
        out = np.empty(len(rank))
        out[order] = np.arange(1, len(rank) + 1) - self.ranks.offsets[:-1][row[order]]
        return out / rank


@dataclass(frozen=True)
class Metric:
    """A metric is named with its cut-off ("NDCG@10"); `of` is its value per row of `Found`, float64 [n].

    `named`: it is measured only if `evaluation.metrics` names it.
    """

    name: str
    of: Callable[[Any], Values | float]
    named: bool = False


METRICS: Table[Metric] = Table("metric", Metric, home="edgefr.simulation.evaluation.beyond", group="edgefr.metrics")
"""What is measured, in the order in which it is written."""

METRICS.register(Metric("HR", lambda found: np.where(found.hits > 0, 1.0, 0.0)))
METRICS.register(Metric("NDCG", lambda found: found.dcg / found.ideal))
METRICS.register(Metric("Recall", lambda found: found.hits / found.counts))
METRICS.register(Metric("Precision", lambda found: found.hits / found.k, named=True))
METRICS.register(Metric("MRR", lambda found: 1.0 / found.first, named=True))  # of the best held-out item within k
METRICS.register(Metric("MAP", lambda found: found.sums(found.precisions) / found.counts, named=True))


def of_ranks(named: Sequence[str]) -> dict[str, Metric]:
    """Return the metrics of ranks: those measured always, and those named."""
    entries = {name: metric for name, metric in METRICS.items() if type(metric) is Metric}
    return {name: metric for name, metric in entries.items() if name in named or not metric.named}


def metrics_at(ks: Sequence[int], named: Sequence[str] = ()) -> list[str]:
    """Return the names of metrics of ranks at these cut-offs: those measured always, and those named.

    >>> metrics_at([10])
    ['HR@10', 'NDCG@10', 'Recall@10']
    """
    return [f"{name}@{k}" for k in ks for name in of_ranks(named)]


def at_cutoffs(ranks: Ragged, ks: Sequence[int], named: Sequence[str] = ()) -> dict[str, Values]:
    """Return metrics at every k per row from the ranks (1 is best) of its held-out items, float64 [n].

    NDCG divides by the best DCG of min(k, held-out items) hits, Recall by the number of held-out items (F3CRec §5.1).
    Rows without held-out items are NaN. Raises `InputError` for cut-offs that are not whole or below 1.

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
        found = Found(k, hits, dcg, np.maximum(counts, 1), ideal, ranks)
        out |= {f"{name}@{k}": np.asarray(metric.of(found)) * some for name, metric in of_ranks(named).items()}
    return out


def check_cutoffs(ks: Sequence[int]) -> None:
    if not len(ks) or any(int(k) != k or k < 1 for k in ks):
        raise InputError(f"metrics need whole cut-offs k of at least 1, for example [10, 20]; got {list(ks)}")


def main_first(names: Iterable[str]) -> list[str]:
    """Return names of metrics with the main one first, at each cut-off, and the others as they come.

    >>> main_first(["HR@10", "NDCG@10", "Recall@10"])
    ['NDCG@10', 'HR@10', 'Recall@10']
    """
    return sorted(names, key=lambda name: not name.startswith(f"{MAIN}@"))
