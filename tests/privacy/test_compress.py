import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privacy import keyed
from privacy.compress import Projection
from privacy.errors import InputError

SIZES = st.integers(1, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))


def matrix(projection):
    """The map written out: its values on unit vectors, [kept, size]."""
    return projection.forth(np.eye(projection.size)).T


@given(SIZES, st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=50)
def test_back_is_the_transposed_map(sizes, key):
    projection = Projection(key, *sizes)
    whole = matrix(projection)
    assert whole.shape == (sizes[1], sizes[0])
    np.testing.assert_allclose(projection.back(np.eye(sizes[1])), whole, atol=1e-12)
    # every coordinate goes to one bucket with a sign, and no bucket has two more of them than another
    assert (np.abs(whole).sum(axis=0) == 1).all()
    assert (np.isin(whole, (-1, 0, 1))).all()
    in_bucket = np.abs(whole).sum(axis=1)
    assert in_bucket.max() - in_bucket.min() <= 1


def test_there_and_back_is_unbiased_with_the_stated_error():
    rng = np.random.default_rng(0)
    vector = rng.normal(size=64)
    found = [Projection(keyed.key(0, "project", n), 64, 16) for n in range(4000)]
    errors = np.array([p.back(p.forth(vector)) - vector for p in found])
    assert np.abs(errors.mean(axis=0)).max() < 5 * errors.std() / 4000**0.5
    assert np.square(errors).sum(axis=1).mean() == pytest.approx((64 / 16 - 1) * vector @ vector, rel=0.05)


@given(hnp.arrays(np.float64, 23, elements=st.floats(-1e6, 1e6)), st.integers(1, 23), st.integers(0, 100))
@settings(deadline=None)
def test_no_l1_norm_gets_longer_and_zeros_are_not_visited(vector, kept, key):
    projection = Projection(key, 23, kept)
    whole = projection.forth(vector)
    assert np.abs(whole).sum() <= np.abs(vector).sum() * (1 + 1e-12)
    places = np.flatnonzero(vector)
    np.testing.assert_array_equal(projection.of_some(places, vector[places]), whole)


def test_signs_are_fair_and_buckets_independent_of_them():
    found = [Projection.of_round(0, number, 40, 4) for number in range(500)]
    signs, buckets = np.array([p.signs for p in found]), np.array([p.buckets for p in found])
    assert abs(signs.mean()) < 5 / 20_000**0.5
    together = signs[:, 0] * signs[:, 1] * (buckets[:, 0] == buckets[:, 1])  # what biases x_0 by x_1
    assert abs(together.mean()) < 5 * (9 / 39 / 500) ** 0.5


@pytest.mark.parametrize("kept", [0, 21])
def test_refuses_to_keep_more_than_there_is(kept):
    with pytest.raises(InputError, match="keeps 1 to 20 values"):
        Projection(0, 20, kept)


def test_refuses_other_shapes():
    with pytest.raises(ValueError, match="19 values instead of 20"):
        Projection(0, 20, 3).forth(np.zeros(19))
    with pytest.raises(ValueError, match="20 values instead of 3"):
        Projection(0, 20, 3).back(np.zeros(20))


def test_sum_of_projections_is_the_projection_of_the_sum():
    projection = Projection(3, 50, 16)
    updates = np.random.default_rng(0).normal(size=(7, 50))
    np.testing.assert_allclose(projection.forth(updates).sum(axis=0), projection.forth(updates.sum(axis=0)), atol=1e-12)


def test_keeping_every_value_loses_nothing():
    projection = Projection(5, 33, 33)
    vector = np.random.default_rng(1).normal(size=33)
    np.testing.assert_allclose(projection.back(projection.forth(vector)), vector, atol=1e-12)


def test_same_key_same_map_other_key_other_map():
    one, same, other = (matrix(Projection(key, 20, 6)) for key in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
