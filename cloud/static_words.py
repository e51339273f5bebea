"""A teacher's vectors of single words become rows of a table: a text is the weighted sum of its words' rows.

No model is left on the device. Vectors of words that come from a sentence encoder are those of Model2Vec (Tulkens & van
Dongen, 2024); rare words count for more, as in SIF (Arora et al., ICLR 2017), here by inverse document frequency.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cloud.tfidf import LEAST, positive
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]

EVEN = 0.5  # power of its spread by which a direction is divided: 0 keeps the teacher's, 1 makes all alike


def fit(vectors: npt.NDArray[np.float32], rarity: Floats, width: int) -> Floats:
    """Return rows of words, float64 [words, width], from the teacher's vectors [words, h] and the words' `rarity`.

    Vectors at length 1 are centred and projected on the main directions of all words, whose spreads come nearer to one
    another. Columns beyond the directions that there are hold zeros. Raises `InputError` for fewer than two words.

    >>> rows = fit(np.array([[1, 0, 0], [0, 1, 0], [0, 2, 0]], np.float32), np.ones(3), 2)
    >>> rows.shape, bool(np.allclose(rows[1], rows[2])), bool(np.allclose(rows[:, 1], 0))
    ((3, 2), True, True)
    """
    if len(vectors) < 2:
        raise InputError("encoder.kind=static learns from at least two words; use hash, or other data")
    unit = vectors.astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    unit -= unit.mean(axis=0)
    squares, turned = np.linalg.eigh(unit.T @ unit / len(unit))
    kept = [place for place in reversed(range(len(squares))) if squares[place] > LEAST**2 * squares[-1] > 0][:width]
    out = np.zeros((len(unit), width))
    out[:, : len(kept)] = rarity[:, None] * (unit @ positive(turned[:, kept])) / squares[kept] ** (EVEN / 2)
    return out
