"""Item-kNN is a central reference without learning: items are alike that the same users have (Sarwar, WWW 2001)."""

from __future__ import annotations

from typing import Any

import numpy as np

SHRINK = 10.0
"""What is added to the cosine's denominator, so that items of few users are alike to little (Bell & Koren, 2007)."""


def likeness(interactions: Any, shrink: float = SHRINK) -> Any:
    """Return S [items, items], sparse, from X [users, items], sparse with ones: the shrunk cosine of items' users.

    S_ij = n_ij / (sqrt(n_i n_j) + shrink), where n_i users have item i and n_ij both; S_ii = 0.

    >>> from scipy.sparse import csr_array
    >>> likeness(csr_array([[1.0, 1, 0], [1, 1, 0], [0, 1, 1]]), shrink=1.0).toarray().round(3).tolist()
    [[0.0, 0.58, 0.0], [0.58, 0.0, 0.366], [0.0, 0.366, 0.0]]
    """
    from scipy.sparse import coo_array

    together = (interactions.T @ interactions).tocoo()
    having = np.asarray(interactions.sum(axis=0)).ravel()
    apart = together.row != together.col
    row, col, both = together.row[apart], together.col[apart], together.data[apart]
    values = both / (np.sqrt(having[row] * having[col]) + shrink)
    return coo_array((values, (row, col)), shape=together.shape).tocsr()
