"""Quantised tables against literal arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from export.quantise import cosine, table_fp16, table_int8
from privacy.errors import InputError

tables = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False),
)


@given(tables)
def test_int8_is_within_half_a_step_of_every_value(table: np.ndarray) -> None:
    values, scale = table_int8(table)
    assert values.dtype == np.int8
    assert values.min(initial=0) >= -127
    for row in range(len(table)):
        largest = max(abs(float(x)) for x in table[row])
        assert float(scale[row]) == pytest.approx(largest / 127, rel=1e-6)
        for column in range(table.shape[1]):
            back = float(values[row, column]) * float(scale[row])
            assert abs(back - float(table[row, column])) <= 0.5 * largest / 127 * (1 + 1e-4)


@pytest.mark.parametrize("stored", [table_int8, table_fp16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_diverged_is_called_that_in_every_precision(stored, value) -> None:
    with pytest.raises(InputError, match="not finite: the model has diverged"):
        stored(np.array([[1.0, value], [0.0, 2.0]], np.float32))


def test_fp16_takes_what_it_can_hold_and_nothing_beyond() -> None:
    largest = np.array([[65504.0, -65504.0]], np.float32)
    np.testing.assert_array_equal(table_fp16(largest).astype(np.float32), largest)
    with pytest.raises(InputError, match="65,504"):
        table_fp16(np.array([[0.0, -65505.0]], np.float32))


def test_cosine_of_paired_rows() -> None:
    a = np.array([[1, 0], [1, 1], [0, 0], [0, 0]], np.float32)
    b = np.array([[0, 2], [2, 2], [0, 0], [1, 0]], np.float32)
    np.testing.assert_allclose(cosine(a, b), [0, 1, 1, 0], atol=1e-6)
