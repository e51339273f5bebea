import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.data.order import repeats, stable_order

numbers = st.lists(st.integers(0, 12), max_size=40)


@pytest.mark.parametrize("bound", [13, 1 << 62])  # packed; too large to be packed with a place
@given(numbers)
def test_a_stable_order_and_repeats_against_lists(bound, values):
    array = np.array(values, dtype=np.int64)
    expected = sorted(range(len(values)), key=lambda place: values[place])  # Python's sort is stable
    assert stable_order(array, bound).tolist() == expected
    again = [place for place in expected if values[place] in values[:place]]
    assert repeats(array, bound).tolist() == again
    assert array.tolist() == values


def test_the_largest_numbers_that_fit():
    bound = 1 << 61  # 61 bits and 2 of the place
    values = np.array([bound - 1, 0, bound - 1, 5])
    assert stable_order(values, bound).tolist() == [1, 3, 0, 2]
    assert repeats(values, bound).tolist() == [2]
