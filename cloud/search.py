"""This finds stored vectors that may be the nearest to a query, among all of them or in the nearest clusters.

Both find a few more than are asked for; the caller ranks them by exact cosines and keeps the best.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privacy.errors import InputError

PIECE = 1 << 23
"""Cosines that are held at once (32 MB of float32, and as many bytes again at most while the best are picked)."""

SCANNED, SCANNED_LEAST = 16, 8
"""One cluster in so many is searched, and never fewer than these."""

Rows = npt.NDArray[np.int64]


def exact(
    queries: Tensor, clients: Tensor, vectors: Tensor, lengths: Tensor, owners: Tensor, count: int
) -> list[Tensor]:
    """Return the rows of the `count` vectors of highest float32 cosine that are not the client's own.

    `queries` float32 [C, P] of length 1, `clients` int64 [C]; `vectors` float32 [N, P] of `lengths` [N], `owners` int64
    [N], -1 where nothing is stored. Pieces [c, .] follow the queries in their order; rows are in no order, and -1 where
    there are too few. Of equal cosines at the end the lower rows are taken.
    """
    count, scale, free = min(count, len(vectors)), (1 / lengths).float(), owners < 0
    step = max(PIECE // max(len(vectors), 1), 1)
    found = []
    for some, mine in zip(queries.split(step), clients.split(step), strict=True):
        cosines = (some @ vectors.T).mul_(scale)
        cosines.masked_fill_(mine.unsqueeze(1) == owners, -torch.inf)
        cosines.masked_fill_(free, -torch.inf)
        best = cosines.topk(min(count + 1, len(vectors)), dim=1, sorted=True)
        rows, tied = best.indices, best.values[:, count - 1] == best.values[:, -1]
        for row in torch.nonzero(tied).squeeze(1).tolist() if rows.shape[1] > count else []:
            rows[row] = cosines[row].sort(stable=True, descending=True).indices[: count + 1]  # the library takes any
        found.append(rows.masked_fill_(best.values == -torch.inf, -1)[:, :count])
    return found


def library() -> ModuleType:
    """Import faiss when it is first needed. Raises `InputError` where it is not installed."""
    try:
        import faiss
    except ImportError:
        raise InputError(
            "index faiss, and auto beyond 100,000 prototypes, needs faiss: pip install 'edgefr[faiss]', "
            "or use index exact or a window"
        ) from None
    module: ModuleType = faiss
    return module


class Clusters:
    """These are stored vectors by cluster (an inverted file, faiss `IndexIVFFlat`).

    The nearest clusters of a query are searched.

    Made of 2 * sqrt(N) centroids [n, P], found by k-means with a fixed seed, or those of a checkpoint: what is found
    depends on the centroids and on what is stored, not on the order in which it came.
    """

    def __init__(self, centroids: npt.NDArray[np.float32]):
        faiss = library()
        self.centroids = centroids
        self._quantizer = faiss.IndexFlatIP(centroids.shape[1])
        self._quantizer.add(centroids)
        self._index: Any = faiss.IndexIVFFlat(self._quantizer, *centroids.shape[::-1], faiss.METRIC_INNER_PRODUCT)
        self._index.is_trained = True
        self._index.nprobe = min(max(len(centroids) // SCANNED, SCANNED_LEAST), len(centroids))

    @classmethod
    def of(cls, units: npt.NDArray[np.float32]) -> Clusters:
        """Make clusters of these vectors [N, P] of length 1, none of them stored yet."""
        count = max(min(2 * math.isqrt(len(units)), len(units)), 1)
        options = {"niter": 10, "spherical": True, "seed": 1, "min_points_per_centroid": 1}
        kmeans = library().Kmeans(units.shape[1], count, **options)
        kmeans.train(units)
        return cls(np.ascontiguousarray(kmeans.centroids, dtype=np.float32))

    def add(self, rows: Rows, units: npt.NDArray[np.float32]) -> None:
        """Store vectors [n, P] of length 1 under their rows [n]."""
        self._index.add_with_ids(units, rows)

    def remove(self, rows: Rows) -> None:
        """Forget what is stored under these rows."""
        if len(rows):
            self._index.remove_ids(library().IDSelectorBatch(rows))

    def nearest(self, queries: npt.NDArray[np.float32], count: int) -> Rows:
        """Return the rows of the `count` vectors of highest cosine in each query's nearest clusters, -1: none."""
        found: Rows = self._index.search(queries, count)[1]
        return found
