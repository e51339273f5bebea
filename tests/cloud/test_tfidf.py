"""TF-IDF and its main directions: as scikit-learn computes them, always the same, and of texts that say little."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from cloud.tfidf import fit, inverse_frequency, main_directions
from privacy.errors import InputError


def counts(texts: int = 60, words: int = 45) -> csr_array:
    """Counts of words in texts, one of them empty, some words in most of them."""
    rng = np.random.default_rng(3)
    found = rng.poisson(np.linspace(0.02, 0.9, words), (texts, words))
    found[7] = 0
    return csr_array(found)


def vectors(weights: np.ndarray, of: csr_array) -> np.ndarray:
    """Texts as sums of their words' rows, at length 1."""
    whole = of @ weights.astype(np.float64)
    return whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-12)


def test_vectors_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    of = counts()
    filled = of[np.flatnonzero(of.sum(axis=1))]
    weights, directions = fit(of, 8)
    theirs = TruncatedSVD(8, algorithm="arpack").fit_transform(TfidfTransformer().fit_transform(filled))
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    found = vectors(weights, filled)
    assert (weights.dtype, directions) == (np.float16, 8)
    np.testing.assert_allclose(np.abs(found), np.abs(theirs), atol=2e-3)  # float16; signs are arbitrary
    np.testing.assert_allclose(found @ found.T, theirs @ theirs.T, atol=2e-3)


def test_rare_words_weigh_more_by_hand() -> None:
    of = csr_array([[3, 1, 0], [1, 0, 0], [1, 0, 1]])
    np.testing.assert_allclose(inverse_frequency(of), [1.0, 1 + np.log(2), 1 + np.log(2)])


def test_main_directions_are_singular_vectors_with_signs_of_their_own() -> None:
    rows = counts().astype(np.float64)
    found = main_directions(rows, 6)
    exact = np.linalg.svd(rows.toarray())[2][:6].T
    np.testing.assert_allclose(np.abs(found), np.abs(exact), atol=1e-5)
    assert (found[np.abs(found).argmax(axis=0), np.arange(6)] > 0).all()
    np.testing.assert_array_equal(found, main_directions(rows, 6))


def test_columns_beyond_the_directions_are_zeros() -> None:
    weights, directions = fit(csr_array(np.tile([[1, 0, 2]], (5, 1))), 4)
    assert (weights.shape, directions) == ((3, 4), 1)
    assert not weights[:, 1:].any()
    assert np.abs(weights).max() == 1.0


@pytest.mark.parametrize("of", [[[1, 2, 3]], [[1], [2]], [[0, 0], [0, 0]], [[1, 2], [0, 0]]])
def test_texts_that_teach_nothing_are_refused(of: list[list[int]]) -> None:
    with pytest.raises(InputError, match="at least two texts and two words"):
        fit(csr_array(of), 4)
