import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.data.sorting import repeats, stable_order

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


def test_numbers_that_leave_no_room_for_their_places_are_sorted_all_the_same():
    """Of 62 and of 63 bits, beside places of one and of two bits: what does not fit must not run over."""
    for top in (1 << 61, 1 << 62):
        for numbers in ([top - 1, 0], [top - 1, 5, top - 1], [5, top - 1, 5, 0]):
            column = np.array(numbers, np.int64)
            assert stable_order(column, top).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)
            assert sorted(numbers[at] for at in repeats(column, top)) == sorted(
                {n for n in numbers if numbers.count(n) > 1}
            )
