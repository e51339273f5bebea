"""Means by group and what they say, against plain loops and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from scipy.stats import f_oneway, spearmanr

from edgefr.metrics.groups import by_group, rank_correlation

few = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])


@given(st.lists(st.tuples(few, st.integers(0, 4)), min_size=1, max_size=40))
@limits(max_examples=80, deadline=None)
def test_means_and_errors_are_those_of_each_group_alone(pairs: list[tuple[float, int]]) -> None:
    values, group = np.array([v for v, _ in pairs]), np.array([g for _, g in pairs])
    found = by_group(values, group, 5)
    for number in range(5):
        mine = values[group == number]
        assert found.users[number] == len(mine)
        if len(mine):
            assert found.mean[number] == pytest.approx(mine.mean())
        else:
            assert np.isnan(found.mean[number])
        if len(mine) > 1:
            assert found.error[number] == pytest.approx(mine.std(ddof=1) / np.sqrt(len(mine)))
        else:
            assert np.isnan(found.error[number])


def test_the_analysis_of_variance_is_scipys() -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.3, 2.0):
        group = rng.integers(0, 4, 60)
        values = rng.normal(size=60) + shift * group
        expected = f_oneway(*(values[group == g] for g in range(4))).pvalue
        assert by_group(values, group, 6).p_equal == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "group", "p"),
    [
        ([1.0, 2.0], [0, 0], None),
        ([1.0, 2.0], [0, 1], None),
        ([1.0] * 4, [0, 0, 1, 1], None),
        ([1.0, 1.0, 2.0, 2.0], [0, 0, 1, 1], 0.0),
    ],
)
def test_where_nothing_can_be_said_nothing_is(values: list[float], group: list[int], p: float | None) -> None:
    found = by_group(np.array(values), np.array(group), 2).p_equal
    assert np.isnan(found) if p is None else found == p


@given(st.lists(st.tuples(few, few), min_size=2, max_size=30))
@limits(max_examples=80, deadline=None)
def test_rank_correlation_is_spearmans_with_ties(pairs: list[tuple[float, float]]) -> None:
    first, second = map(np.array, zip(*pairs, strict=True))
    found = rank_correlation(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)
