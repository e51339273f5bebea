"""Lanes compute what their numbers alone would."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import LANES, compiled, reordered
from cloud.compiled import lanes as of


@compiled
def _each(a: Any, b: Any, out: Any) -> Any:
    left, right, zero = of.load(a, 0), of.load(b, 0), of.spread(np.float32(0))
    of.store(out, 0, left + right)
    of.store(out, LANES, left - right)
    of.store(out, 2 * LANES, left * right)
    of.store(out, 3 * LANES, left / right)
    of.store(out, 4 * LANES, of.root(left * left))
    of.store(out, 5 * LANES, of.where_above(left, right, left, right))
    of.store(out, 6 * LANES, of.where_not_above(left, zero, zero, left))
    return of.total(left)


@compiled
def _exp(x: Any, out: Any) -> None:
    for i in range(0, x.shape[0], LANES):
        of.store(out, i, of.exp(of.load(x, i)))


@compiled
def _turned(rows: Any, places: Any, out: Any, back: Any) -> None:
    of.rows_to_columns(rows, places, 2, out, 1, LANES + 1)
    of.add_columns_to_rows(back, places, 2, out, 1, LANES + 1)


@compiled
def _rounded(x: Any) -> Any:
    return (x + np.float32(12582912)) - np.float32(12582912)


@reordered
def _asks_first(x: Any) -> Any:
    return _rounded(x)


def test_what_is_compiled_as_written_stays_so_whoever_calls_it_first() -> None:
    """A caller whose sums may be reordered would have the two numbers cancel each other."""
    assert _asks_first(np.float32(1.3)) == 1.0


def test_arithmetic_is_that_of_single_numbers() -> None:
    a, b = np.linspace(-3, 4, LANES, dtype=np.float32), np.linspace(2, 1, LANES, dtype=np.float32)
    out = np.empty((7, LANES), np.float32)
    assert np.isclose(_each(a, b, out), a.sum())
    assert np.array_equal(out, [a + b, a - b, a * b, a / b, abs(a), np.maximum(a, b), np.maximum(a, 0)])


def test_what_is_no_number_stays_none() -> None:
    a, out = np.full(LANES, np.nan, np.float32), np.empty((7, LANES), np.float32)
    assert np.isnan(_each(a, a, out))
    assert np.isnan(out).all()
    few = np.empty(LANES, np.float32)
    _exp(a, few)
    assert np.isnan(few).all()


def test_the_exponential_is_right_to_two_units_in_the_last_place() -> None:
    x = np.linspace(-87, 87, 8000 * LANES, dtype=np.float32)
    out = np.empty_like(x)
    _exp(x, out)
    exact = np.exp(x.astype(np.float64))
    assert (abs(out - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()


def test_beyond_its_range_the_exponential_stays_finite_and_above_0() -> None:
    out = np.empty(LANES, np.float32)
    _exp(np.array([-1e9, -np.inf, -88, 88, 1e9, np.inf, 0, -0.0], np.float32), out)
    assert np.isfinite(out).all()
    assert (out[:3] > 0).all()
    assert (out[:3] < 1e-37).all()
    assert out[6:].tolist() == [1, 1]


def test_rows_become_columns_and_are_added_to_rows_again() -> None:
    rows = np.arange(40 * 12, dtype=np.float32).reshape(40, 12)
    some = np.array([3, 0, 39, 7, 7, 20, 1, 3])
    out, back = np.zeros((LANES, LANES + 1), np.float32), np.zeros_like(rows)
    _turned(rows, some * 12, out, back)
    assert np.array_equal(out[:, 1:], rows[some, 2 : 2 + LANES].T)
    assert not out[:, 0].any()
    want = np.zeros_like(rows)
    for i in some:
        want[i, 2 : 2 + LANES] += rows[i, 2 : 2 + LANES]
    assert np.array_equal(back, want)
