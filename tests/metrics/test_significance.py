"""The paired t-test against published and closed-form values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.metrics.significance import paired_t

ONE = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
TWO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_student_s_sleep_data():
    """Student 1908; t = -4.0621 on 9 degrees of freedom."""
    assert paired_t(ONE, TWO) == pytest.approx(0.002833, abs=5e-7)
    assert paired_t(TWO, ONE) == paired_t(ONE, TWO)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=3))
def test_three_pairs_against_the_closed_form(pairs):
    """With 2 degrees of freedom p = 1 - |t| / sqrt(t^2 + 2)."""
    first, second = np.array(pairs).T
    difference = first - second
    spread = difference.std(ddof=1)
    if spread < 1e-6:
        return
    t = abs(difference.mean()) / (spread / math.sqrt(3))
    assert paired_t(first, second) == pytest.approx(1 - t / math.sqrt(t * t + 2), abs=1e-9)


def test_pairs_with_a_gap_are_left_out():
    gap = math.nan
    assert paired_t([*ONE, 0.3, gap], [*TWO, gap, 0.1]) == paired_t(ONE, TWO)


def test_too_few_pairs_say_nothing():
    assert math.isnan(paired_t([], []))
    assert math.isnan(paired_t([0.3], [0.2]))
    assert math.isnan(paired_t([0.3, 0.4], [0.2, math.nan]))


def test_differences_that_are_all_the_same():
    assert paired_t(ONE, ONE) == 1.0
    assert paired_t([0.5, 0.75, 1.0], [0.25, 0.5, 0.75]) == 0.0


@pytest.mark.parametrize("second", [[0.1], [[0.1, 0.2]], 0.1])
def test_pairs_need_two_rows_of_one_length(second):
    with pytest.raises(ValueError, match="two rows of one length"):
        paired_t([0.1, 0.2], second)


def test_differences_of_a_thousandth_are_differences():
    from scipy.stats import ttest_rel

    one, two = [0.301, 0.302, 0.304], [0.3, 0.3, 0.3]
    assert paired_t(one, two) == pytest.approx(ttest_rel(one, two).pvalue)
    assert paired_t([1e-4, 1e-4], [0.0, 0.0]) == 0.0
