"""A teacher's words as rows of a table: against a literal decomposition, and where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.static_words import fit
from privacy import keyed
from privacy.errors import InputError


def drawn(seed: int, words: int, width: int) -> np.ndarray:
    """A teacher's vectors, of lengths that differ."""
    base = keyed.generator(seed, "words").standard_normal((words, width)) * np.arange(1, width + 1)
    return (base * np.arange(1, words + 1)[:, None]).astype(np.float32)


@given(seed=st.integers(0, 99), words=st.integers(8, 20), width=st.integers(1, 5))
def test_rows_are_centred_projected_evened_and_weighed(seed: int, words: int, width: int) -> None:
    vectors, rarity = drawn(seed, words, 5), np.linspace(1.0, 3.0, words)
    unit = np.array([row / np.sqrt(sum(v * v for v in row.astype(float))) for row in vectors])
    centred = unit - unit.mean(axis=0)
    left, spread, right = np.linalg.svd(centred, full_matrices=False)
    expected = rarity[:, None] * left[:, :width] * np.sqrt(spread[:width]) * words**0.25
    signs = np.sign(right[np.arange(width), np.abs(right[:width]).argmax(axis=1)])
    np.testing.assert_allclose(fit(vectors, rarity, width), expected * signs, atol=1e-5)


def test_columns_beyond_the_teachers_directions_hold_zeros() -> None:
    rows = fit(drawn(0, 9, 3), np.ones(9), 7)
    assert rows.shape == (9, 7)
    assert rows[:, :3].any(axis=0).all()
    assert not rows[:, 3:].any()


def test_words_that_are_all_alike_have_rows_of_zeros() -> None:
    assert not fit(np.ones((4, 3), np.float32), np.ones(4), 2).any()


def test_one_word_teaches_nothing() -> None:
    with pytest.raises(InputError, match="at least two words; use hash"):
        fit(drawn(0, 1, 3), np.ones(1), 2)
