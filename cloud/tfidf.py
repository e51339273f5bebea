"""Words are weighed by what they say of texts, and projected on the directions in which texts differ: TF-IDF and SVD.

This is latent semantic analysis (Deerwester et al., 1990) with the smoothed inverse document frequency of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cloud import random_streams as purposes
from privacy import keyed
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]

BESIDE, TIMES = 16, 8  # directions followed beside those that are asked for, and how often they are turned
LEAST = 1e-6  # a direction whose singular value is a smaller share of the largest is one of rounding alone


def inverse_frequency(counts: Any) -> Floats:
    """Return log((1 + n) / (1 + n_w)) + 1 of every word, where n_w of the n texts have it: `counts` [n, words], sparse.

    >>> from scipy.sparse import csr_array
    >>> inverse_frequency(csr_array([[2, 0], [1, 1]])).round(3).tolist()
    [1.0, 1.405]
    """
    having = np.bincount(counts.nonzero()[1], minlength=counts.shape[1])
    return np.log((1.0 + counts.shape[0]) / (1.0 + having)) + 1.0


def fit(counts: Any, width: int) -> tuple[npt.NDArray[np.float16], int]:
    """Learn rows of words from counts [texts, words], a sparse matrix: float16 [words, width], and how many directions.

    A text's vector is the sum of its words' rows, at length 1: its TF-IDF on the main directions of all texts' TF-IDF,
    each at length 1. Only proportions count, so the largest weight is 1. Columns beyond the directions that texts have
    are zeros. Raises `InputError` where there are not two texts and two words.

    >>> from scipy.sparse import csr_array
    >>> fit(csr_array([[1, 0, 0], [0, 1, 0], [0, 1, 1]]), 4)[0].shape
    (3, 4)
    """
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import norm

    counts = counts.astype(np.float64)
    counts = counts[np.flatnonzero(counts.sum(axis=1))]
    if min(counts.shape) < 2:
        raise InputError("encoder.kind=tfidf learns from at least two texts and two words; use hash, or other data")
    rarity = inverse_frequency(counts)
    weighed = counts @ diags_array(rarity)
    main = main_directions((diags_array(1.0 / norm(weighed, axis=1)) @ weighed).tocsr(), width)
    weights = np.zeros((counts.shape[1], width))
    weights[:, : main.shape[1]] = rarity[:, None] * main
    return (weights / np.abs(weights).max()).astype(np.float16), main.shape[1]


def main_directions(rows: Any, most: int) -> Floats:
    """Return the first right singular vectors of a sparse matrix [n, m], as columns [m, k], k at most `most`.

    By subspace iteration on m alone (Halko, Martinsson & Tropp, SIAM Review 2011), from directions that are the same
    for every run. Directions of rounding are left out, and each has a positive entry of largest size.
    """
    width = min(most + BESIDE, *rows.shape)
    found = keyed.generator(0, purposes.FIRST_DIRECTIONS).standard_normal((rows.shape[1], width))
    for _ in range(TIMES):
        found = np.linalg.qr(rows.T @ (rows @ found))[0]
    there = rows @ found
    squares, turned = np.linalg.eigh(there.T @ there)
    kept = [place for place in reversed(range(width)) if squares[place] > LEAST**2 * squares[-1]][:most]
    return positive(found @ turned[:, kept])


def positive(directions: Floats) -> Floats:
    """Return columns whose entry of largest size is positive: a direction and its opposite are the same one."""
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])]
    return directions * np.where(largest < 0, -1.0, 1.0)
