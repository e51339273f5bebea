"""Intervals over users: the same as a loop that draws users again, and right as often as they say."""

import numpy as np
import pytest

from edgefr.metrics import bootstrap
from edgefr.metrics.bootstrap import LEAST, intervals


def literal(parts, draws):
    """Each resample as a loop: everybody drawn brings what was measured of it in every part."""
    means = []
    for drawn in draws:
        of_parts = []
        for users, values in parts:
            rows = [values[list(users).index(user)] for user in drawn if user in users]
            of_parts.append(np.mean(rows, axis=0) if rows else values.mean(axis=0))
        means.append(np.mean(of_parts, axis=0))
    return np.quantile(means, [0.025, 0.975], axis=0)


def test_it_is_the_loop_over_users():
    rng = np.random.default_rng(1)
    parts = [(np.arange(0, 14), rng.normal(size=(14, 2))), (np.array([3, 9, 20, 25]), rng.normal(size=(4, 2)))]
    everybody = np.unique(np.concatenate([users for users, _ in parts]))
    found = intervals(parts, np.random.default_rng(7), resamples=50)
    draws = everybody[np.random.default_rng(7).integers(0, len(everybody), (50, len(everybody)))]
    low, high = literal(parts, draws)
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)
    assert found.mean == pytest.approx(np.mean([values.mean(axis=0) for _, values in parts], axis=0))


def test_how_much_is_held_at_once_changes_nothing(monkeypatch):
    parts = [(np.arange(40), np.random.default_rng(2).normal(size=(40, 3)))]
    whole = intervals(parts, np.random.default_rng(3), resamples=30)
    monkeypatch.setattr(bootstrap, "_CHUNK", 7 * 40)
    cut = intervals(parts, np.random.default_rng(3), resamples=30)
    assert np.array_equal(whole.low, cut.low)
    assert np.array_equal(whole.high, cut.high)


def test_the_truth_is_inside_about_as_often_as_it_says():
    rng = np.random.default_rng(4)
    hits = 0
    for number in range(300):
        values = (rng.random((120, 1)) < 0.3) - 0.3
        found = intervals([(np.arange(120), values)], np.random.default_rng(number), resamples=400)
        hits += bool(found.low[0] <= 0 <= found.high[0])
    assert 0.90 <= hits / 300 <= 0.99


def test_of_few_users_nothing_is_said():
    few = [(np.arange(LEAST - 1), np.ones((LEAST - 1, 1)))]
    assert np.isnan(intervals(few, np.random.default_rng(0)).low).all()
    enough = [(np.arange(LEAST), np.ones((LEAST, 1)))]
    assert intervals(enough, np.random.default_rng(0)).low.tolist() == [1.0]
