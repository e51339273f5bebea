"""Averages over blocks against figures worked out by hand and against plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.metrics import continual

NAN = math.nan
PAPER = [[0.28], [0.08, 0.10], [0.07, 0.05, 0.08], [0.06, 0.03, 0.04, 0.12]]


def test_by_hand():
    assert continual.learning_average(PAPER) == pytest.approx((0.28 + 0.10 + 0.08 + 0.12) / 4)
    assert continual.learning_average(PAPER, first=1) == pytest.approx((0.10 + 0.08 + 0.12) / 3)
    assert continual.retained_average(PAPER) == pytest.approx((0.06 + 0.03 + 0.04 + 0.12) / 4)
    assert continual.retained_average(PAPER, first=1) == pytest.approx((0.03 + 0.04 + 0.12) / 3)
    assert continual.forgetting(PAPER) == pytest.approx((0.22 + 0.07 + 0.04) / 3)
    assert continual.forgetting(PAPER, first=1) == pytest.approx((0.07 + 0.04) / 2)
    assert continual.harmonic_mean(0.1, 0.4) == pytest.approx(0.16)
    assert continual.degradation(0.28, 0.08) == pytest.approx(5 / 7)


def test_the_averages_of_the_paper():
    """F3CRec Table 2, FedMF on ML-100K: D1, D2, D3 and their average."""
    after = [[0.2], [NAN, 0.0933], [NAN, NAN, 0.0885], [NAN, NAN, NAN, 0.1284]]
    assert round(continual.learning_average(after, first=1), 4) == 0.1034


def test_nothing_to_average_is_nan_without_a_warning():
    assert math.isnan(continual.learning_average([[NAN]]))
    assert math.isnan(continual.retained_average([[0.1], [NAN, NAN]]))
    assert math.isnan(continual.forgetting([[0.3]]))
    assert math.isnan(continual.forgetting([[0.3], [0.1, 0.2]], first=1))
    assert math.isnan(continual.degradation(0.0, 0.1))
    assert math.isnan(continual.degradation(NAN, 0.1))
    assert math.isnan(continual.harmonic_mean(NAN, 0.1))
    assert continual.harmonic_mean(0.0, 0.0) == 0.0


def test_what_stands_above_the_diagonal_is_not_read():
    square = np.full((4, 4), 99.0)
    for t, row in enumerate(PAPER):
        square[t, : t + 1] = row
    for measure in (continual.learning_average, continual.retained_average, continual.forgetting):
        assert measure(square) == measure(PAPER)


@pytest.mark.parametrize("measure", [continual.learning_average, continual.retained_average, continual.forgetting])
def test_faults_of_the_caller(measure):
    with pytest.raises(ValueError, match=r"row 1 has 1 values; it must hold a\(1, 0\) to a\(1, 1\)"):
        measure([[0.1], [0.2]])
    with pytest.raises(ValueError, match="of 0 blocks none counts from block 0 on"):
        measure([])
    with pytest.raises(ValueError, match="of 2 blocks none counts from block 2 on"):
        measure([[0.1], [0.2, 0.3]], first=2)


value = st.one_of(st.just(NAN), st.floats(0, 1))


@st.composite
def triangles(draw):
    blocks = draw(st.integers(1, 5))
    table = [[draw(value) for _ in range(t + 1)] for t in range(blocks)]
    return table, draw(st.integers(0, blocks - 1))


def mean(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else NAN


@given(triangles())
def test_against_plain_loops(case):
    table, first = case
    last = len(table) - 1
    lost = []
    for s in range(first, last):
        before = [table[t][s] for t in range(s, last) if not math.isnan(table[t][s])]
        if before:
            lost.append(max(before) - table[last][s])
    expected = (
        mean([table[s][s] for s in range(first, last + 1)]),
        mean([table[last][s] for s in range(first, last + 1)]),
        mean(lost),
    )
    measures = (continual.learning_average, continual.retained_average, continual.forgetting)
    for measure, wanted in zip(measures, expected, strict=True):
        assert measure(table, first) == pytest.approx(wanted, nan_ok=True)


@given(st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_the_harmonic_mean_lies_between_the_two_and_below_their_mean(a, b):
    found = continual.harmonic_mean(a, b)
    assert min(a, b) * (1 - 1e-12) <= found <= (a + b) / 2 * (1 + 1e-12)
    assert 1 / found == pytest.approx((1 / a + 1 / b) / 2)
