"""What code that holds a secure sum can and cannot do with it."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privacy.errors import InputError
from privacy.secure_sum import FixedPoint, SecureSum


def filled(vectors, **values):
    total = SecureSum(vectors.shape[1], **values)
    for vector in vectors:
        assert total.add(vector) is None
    return total


@given(
    hnp.arrays(np.float64, (4, 3), elements=st.floats(-1e6, 1e6)), hnp.arrays(np.float64, 4, elements=st.floats(0, 2))
)
@settings(deadline=None)
def test_the_sum_is_the_weighted_sum_in_order(vectors, weights):
    total, literal = SecureSum(3), np.zeros(3)
    for vector, weight in zip(vectors, weights, strict=True):
        total.add(vector, weight)
        literal = literal + vector * weight
    np.testing.assert_array_equal(total.open(), literal)


def test_it_opens_once_with_its_noise_and_takes_nothing_after():
    total = filled(np.ones((3, 2)))
    assert total.open(noise=lambda shape: np.full(shape, 0.5)).tolist() == [3.5, 3.5]
    with pytest.raises(InputError, match="opened before"):
        total.open()
    with pytest.raises(InputError, match="the next round needs a new one"):
        total.add(np.ones(2))


def test_it_stays_closed_below_its_smallest_cohort():
    total = filled(np.ones((1, 2)))
    with pytest.raises(InputError, match="the sum of 1 clients stays closed: 2 are needed"):
        total.open()
    total.add(np.ones(2))
    assert total.open().tolist() == [2, 2]


def test_no_name_reaches_a_part_or_the_sum():
    """Everything a holder can name is a function of this module or of Python; no array, and no way to make one."""
    total = filled(np.full((2, 2), 12345.678))
    public = [name for name in dir(total) if not name.startswith("_")]
    assert public == ["add", "open"]
    assert not hasattr(total, "__dict__")
    for name in dir(total):
        assert not isinstance(getattr(total, name), np.ndarray)
    assert "12345.678" not in repr(total)
    assert "12345.678" not in str(total)
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            take(total)
    for take in (list, float, len, lambda it: np.asarray(it, dtype=float)):
        with pytest.raises(TypeError):
            take(total)
    with pytest.raises(AttributeError):
        total.parts = []


def test_what_was_added_and_what_was_opened_are_not_shared():
    mine = np.ones(2)
    total = SecureSum(2)
    total.add(mine)
    mine[:] = 99.0
    total.add(np.ones(2))
    assert total.open().tolist() == [2, 2]


@pytest.mark.parametrize(
    ("vector", "message"), [(np.ones(3), r"shape \(3,\), not \(2,\)"), (np.array([1.0, np.nan]), "not finite")]
)
def test_refuses_a_release_that_would_spoil_the_sum(vector, message):
    total = filled(np.ones((2, 2)))
    with pytest.raises(ValueError, match=message):
        total.add(vector)
    assert total.open().tolist() == [2, 2]


def test_fixed_point_rounds_by_half_a_level_per_client_and_cuts_what_is_too_long():
    vectors = np.random.default_rng(0).normal(size=(943, 50))
    opened = filled(vectors, fixed_point=FixedPoint()).open()
    level = 8.0 / 2**21
    error = np.abs(opened - vectors.sum(axis=0))
    assert 0 < error.max() <= 943 * level / 2
    assert filled(np.full((2, 1), 100.0), fixed_point=FixedPoint()).open().tolist() == [16.0]


def test_fixed_point_overflows_beyond_its_capacity_and_not_before():
    small = FixedPoint(largest=1.0, levels=8, bits=6)
    assert small.capacity == 7
    assert filled(np.ones((7, 1)), fixed_point=small).open().tolist() == [7.0]
    assert filled(np.ones((8, 1)), fixed_point=small).open().tolist() == [-8.0]
    assert filled(-np.ones((8, 1)), fixed_point=small).open().tolist() == [-8.0]


@pytest.mark.parametrize("values", [{"largest": 0.0}, {"levels": 1}, {"bits": 63}, {"levels": 2**22, "bits": 16}])
def test_refuses_a_fixed_point_that_holds_nothing(values):
    with pytest.raises(InputError, match="fixed point needs"):
        FixedPoint(**values)
