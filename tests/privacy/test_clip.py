import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privacy.clip import clip, clip_factors, joint_norms
from privacy.errors import InputError

NORMS = st.sampled_from(["l1", "l2"])
BOUNDS = st.floats(1e-6, 1e6)
SHAPES = st.one_of(st.just(()), st.just((0,)), hnp.array_shapes(max_dims=2, max_side=6))


def any_floats(dtype):
    """Arrays of any floats of a type: inf, nan, subnormal, the largest."""
    return hnp.arrays(dtype, SHAPES)


def exceeds(values, bound, norm):
    """Whether the norm is above the bound, in exact arithmetic."""
    exact = [abs(Fraction(float(value))) for value in values.ravel()]
    if norm == "l1":
        return sum(exact, Fraction(0)) > Fraction(bound)
    return sum((value**2 for value in exact), Fraction(0)) > Fraction(bound) ** 2


@given(st.one_of(any_floats(np.float32), any_floats(np.float64)), BOUNDS, NORMS)
@settings(max_examples=150, deadline=None)
def test_clipped_norm_is_within_the_bound(values, bound, norm):
    out = clip(values, bound, norm)
    assert out.dtype == values.dtype
    assert out.shape == values.shape
    assert not exceeds(out, bound, norm)


@given(st.one_of(any_floats(np.float32), any_floats(np.float64)), BOUNDS, NORMS)
@settings(max_examples=100, deadline=None)
def test_clipping_twice_changes_nothing(values, bound, norm):
    once = clip(values, bound, norm)
    np.testing.assert_array_equal(clip(once, bound, norm), once)


@given(hnp.arrays(np.float64, 7, elements=st.floats(-10, 10)), BOUNDS, NORMS)
@settings(deadline=None)
def test_an_update_keeps_its_direction_and_a_short_one_everything(values, bound, norm):
    out = clip(values, bound, norm)
    length = np.linalg.norm(values, 1 if norm == "l1" else 2)
    expected = values if length <= bound * (1 - 2e-6) else values * min(1.0, bound / length)
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=1e-300)


def test_tensors_are_clipped_jointly():
    rng = np.random.default_rng(0)
    table, bias = rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 5))
    whole = np.concatenate([table.reshape(4, -1), bias], axis=1)
    for norm, order in (("l1", 1), ("l2", 2)):
        literal = [np.linalg.norm(row, order) for row in whole]
        np.testing.assert_allclose(joint_norms([table, bias], norm), literal, rtol=1e-14)
        taken = [np.linalg.norm(table.reshape(4, -1), order, axis=1), bias]
        np.testing.assert_allclose(joint_norms(taken, norm), literal, rtol=1e-14)
        factors = clip_factors(joint_norms([table, bias], norm), 1.0)
        clipped = [clip(row, 1.0, norm) for row in whole]
        np.testing.assert_allclose(factors[:, None] * whole, clipped, rtol=1e-14)


@given(hnp.arrays(np.float32, (2, 3, 2)), hnp.arrays(np.float64, (2, 4)), BOUNDS, NORMS)
@settings(max_examples=100, deadline=None)
def test_all_tensors_together_are_within_the_bound(table, bias, bound, norm):
    """A client's tensors, each multiplied in its own type as an engine does, or zeros where it is dropped."""
    for client, factor in enumerate(clip_factors(joint_norms([table, bias], norm), bound)):
        parts = [tensor[client] * tensor.dtype.type(factor) if factor else 0 * np.ones(1) for tensor in (table, bias)]
        assert not exceeds(np.concatenate([part.ravel().astype(np.float64) for part in parts]), bound, norm)


def test_norms_neither_overflow_nor_vanish():
    huge, tiny = np.full((1, 4), 1e200), np.full((1, 4), 1e-200)
    np.testing.assert_allclose(joint_norms([huge], "l2"), 2e200, rtol=1e-14)
    np.testing.assert_allclose(joint_norms([tiny], "l2"), 2e-200, rtol=1e-14)
    assert joint_norms([np.zeros((3, 0))], "l2").tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_client_with_a_bad_value_is_dropped_and_nobody_else(bad, norm):
    parts = [np.array([[1.0, 0.0], [bad, 1.0], [3.0, 0.0]]), np.array([[0.0], [0.0], [4.0]])]
    factors = clip_factors(joint_norms(parts, norm), 5.0)
    assert (factors[0], factors[1]) == (1.0, 0.0)
    assert factors[2] > 0.7
    assert not clip(parts[0][1], 5.0, norm).any()


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_refuses_a_bound_that_bounds_nothing(bound):
    with pytest.raises(InputError, match="the clip must be a positive number"):
        clip_factors([1.0], bound)


def test_a_diverged_update_is_dropped_rather_than_scaled_by_a_factor_without_digits():
    assert clip_factors([2.0**127], 1.0)[0] == 0.0
    assert clip_factors([2.0**125], 1.0)[0] == (1 - 2.0**-20) * 2.0**-125
    values = np.full(3, 1.7e38, dtype=np.float32)
    assert not clip(values, 1e-6, "l2").any()


def test_margin():
    assert clip_factors([2.0], 1.0)[0] == (1 - 2.0**-20) / 2
    assert clip_factors([1.0], 1.0)[0] < 1.0
    assert clip_factors([0.999999], 1.0)[0] == 1.0
