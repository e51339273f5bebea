"""Quantiles from histograms, against numpy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.fleet.histogram import Histogram


def filled(values, device=None):
    histogram = Histogram(2, 3)
    device = np.zeros(len(values), dtype=np.uint16) if device is None else device
    histogram.add("seconds", device, np.asarray(values, dtype=float))
    return histogram


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-5, 1e12), min_size=1, max_size=50))
def test_quantiles_are_within_a_bin_of_the_exact_ones(values):
    exact = np.quantile(values, [0.1, 0.5, 0.9], method="inverted_cdf")
    assert list(filled(values).quantiles("seconds").values()) == pytest.approx(exact.tolist(), rel=0.012)


def test_one_value_is_exact_and_zero_stays_zero():
    assert filled([400_000.0] * 9).quantiles("seconds") == {"p10": 4e5, "p50": 4e5, "p90": 4e5}
    assert filled([0.0, 0.0]).quantiles("seconds", 0) == {"p10": 0.0, "p50": 0.0, "p90": 0.0}
    assert filled([1.0]).quantiles("seconds", 1) == {"p10": None, "p50": None, "p90": None}


def test_classes_are_apart_and_add_up():
    device = np.array([0, 0, 1, 1, 1], dtype=np.uint16)
    histogram = filled([1.0, 1.0, 8.0, 8.0, 8.0], device)
    histogram.outcome(device, np.array([0, 1, 0, 0, 2], dtype=np.uint8))
    assert histogram.quantiles("seconds", 0)["p90"] == 1.0
    assert histogram.quantiles("seconds", 1)["p10"] == 8.0
    assert histogram.quantiles("seconds")["p50"] == 8.0
    assert histogram.totals[:, 0].tolist() == [2.0, 24.0]
    assert histogram.outcomes.tolist() == [[1, 1, 0], [2, 0, 1]]
