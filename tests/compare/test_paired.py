"""Tests over users: what they come to by hand, and how often they claim a difference where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from edgefr.metrics.paired import Apart, apart, family
from edgefr.metrics.significance import cohen_d, rank_biserial


def users(values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.arange(len(values)), values)]


def test_one_pair_is_what_its_parts_say():
    values = np.random.default_rng(3).normal(0.1, 0.3, (40, 2))
    for column, found in enumerate(apart(users(values))):
        own = values[:, column]
        assert found.mean == pytest.approx(own.mean())
        assert found.low < found.mean < found.high
        assert found.p == pytest.approx(stats.wilcoxon(own).pvalue)
        assert found.d == pytest.approx(own.mean() / own.std(ddof=1))
        rank = stats.rankdata(np.abs(own))
        assert found.r == pytest.approx((rank[own > 0].sum() - rank[own < 0].sum()) / rank.sum())
        assert found.users == 40


def test_a_user_of_several_blocks_counts_once():
    first, second = (np.array([0, 1, 2]), np.array([[0.3], [0.1], [0.2]])), (np.array([2, 3]), np.array([[0.6], [0.2]]))
    (found,) = apart([first, second])
    assert found.users == 4
    assert found.mean == pytest.approx((0.2 + 0.4) / 2), "the mean of the blocks' means, as a run prints it"
    assert found.d == pytest.approx(cohen_d([0.3, 0.1, 0.4, 0.2]))


def test_few_users_are_never_told_apart():
    """There is no interval for fewer than 10 users, and without one nothing is claimed."""
    (found,) = apart(users(np.full((9, 1), 0.5)))
    assert np.isnan(found.low)
    assert family({"a": found})["a"].side == 0


def test_effect_sizes_where_there_is_nothing():
    assert cohen_d([0.0, 0.0, 0.0]) == 0.0
    assert np.isnan(cohen_d([0.1, 0.1]))
    assert np.isnan(cohen_d([0.1]))
    assert rank_biserial([0.0, 0.0]) == 0.0
    assert rank_biserial([-0.1, 0.0, -0.2]) == -1.0
    assert np.isnan(rank_biserial([np.nan, 1.0]))


def three_runs(rng: np.random.Generator, better: float = 0.0) -> dict[tuple[int, int, int], Apart]:
    """Return all pairs of three runs in two metrics: users differ much, runs on a user a little or (`better`) more."""
    base = rng.exponential(0.15, (60, 2)) * (rng.random((60, 2)) < 0.6)
    runs = [base + rng.normal(0, 0.1, (60, 2)) for _ in range(3)]
    runs[2] = runs[2] + better
    return {
        (one, other, metric): found
        for one in range(3)
        for other in range(one + 1, 3)
        for metric, found in enumerate(apart(users(runs[one] - runs[other])))
    }


def test_runs_alike_are_told_apart_as_seldom_as_promised():
    """Of 250 tables of runs alike one test is below .05 in about 5 %, and the table tells any apart in at most that."""
    rng, single, told = np.random.default_rng(5), 0, 0
    for _ in range(250):
        found = three_runs(rng)
        single += found[0, 1, 0].p < 0.05
        told += any(one.side for one in family(found).values())
    assert 0.02 <= single / 250 <= 0.08
    assert told / 250 <= 0.07


def test_runs_that_differ_are_told_apart():
    rng, found = np.random.default_rng(6), 0
    for _ in range(20):
        tested = family(three_runs(rng, better=0.1))
        found += all(tested[one, 2, metric].side == -1 for one in (0, 1) for metric in (0, 1))
    assert found >= 18
