"""Deciding for many clients at once is deciding by each one's epsilon, in any order, with few epsilons computed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy import budget
from privacy.accounting import composed, gaussian_epsilon
from privacy.budget import Budget, distinct
from privacy.guarantee import Event

DELTA = 1e-5
GAUSSIAN, L1 = Event("gaussian", multiplier=12.0), Event("laplace", "l1", 20.0)
EVENTS = [
    GAUSSIAN,
    L1,
    Event("laplace", "l2", 12.0),
    Event("discrete-laplace", "l1", 60.0, 2048),
    Event("gaussian", multiplier=12.0, recipient="another client"),
    Event("paper-laplace"),
]


def literal(events, row, limit, delta=DELTA):
    return composed(list(zip(events, row, strict=True)), delta).epsilon <= limit


@pytest.fixture
def asked(monkeypatch):
    """What `composed` was asked for."""
    found = []

    def watched(spent, delta):
        found.append(spent)
        return composed(spent, delta)

    monkeypatch.setattr(budget, "composed", watched)
    return found


COUNTS = st.lists(st.lists(st.integers(0, 60), min_size=3, max_size=3), min_size=1, max_size=6)
CHOSEN = st.lists(st.sampled_from(EVENTS), min_size=3, max_size=3, unique=True)


@given(
    CHOSEN, st.lists(COUNTS, min_size=1, max_size=3), st.floats(0.01, 4.0), st.sampled_from([1e-6, DELTA, 0.3, 0.95])
)
@settings(max_examples=40, deadline=None)
def test_it_decides_as_epsilons_would_whatever_it_was_asked_before(events, batches, limit, delta):
    kept = Budget(limit, delta)
    for rows in batches:
        expected = [literal(events, row, limit, delta) for row in rows]
        assert kept.keeps(events, np.array(rows).T).tolist() == expected
        backwards = Budget(limit, delta).keeps(events[::-1], np.array(rows[::-1]).T[::-1])
        assert backwards[::-1].tolist() == expected


@pytest.mark.parametrize("event", EVENTS[:4], ids=lambda event: f"{event.mechanism} {event.norm}")
@pytest.mark.parametrize(("share", "kept"), [(1 - 1e-9, False), (1.0, True), (1 + 1e-9, True)])
def test_closer_than_rounding_the_epsilon_itself_decides(event, share, kept):
    limit = composed([(event, 40)], DELTA).epsilon
    got = Budget(limit * share, DELTA).keeps([event], np.array([[39, 40, 41]])).tolist()
    assert got == [True, kept, False]


def test_a_round_at_a_time_few_distributions_are_computed(asked):
    kept = Budget(1.3, DELTA)
    answers = [bool(kept.keeps([L1], np.array([[count]]))[0]) for count in range(1, 61)]
    assert answers == [literal([L1], [count], 1.3) for count in range(1, 61)]
    assert sum(answers) == 49  # Renyi curves alone would end at 43
    assert 2 <= len(asked) <= 6


def test_an_endless_budget_keeps_everything_and_a_finite_one_nothing_without_a_guarantee():
    counts = np.array([[0, 1]])
    assert Budget(math.inf, DELTA).keeps([Event("none")], counts).tolist() == [True, True]
    assert Budget(1e300, DELTA).keeps([Event("none")], counts).tolist() == [True, False]
    assert Budget(1e300, DELTA).keeps([GAUSSIAN], np.array([[1, 10**6]])).tolist() == [True, True]


def test_distinct_columns_even_where_their_numbers_are_too_large_to_pack():
    rows = np.array([[2**31 - 1, 0, 2**31 - 1, 5]] * 4)
    rows[3, 2] = 1
    found, inverse = distinct(rows)
    assert [tuple(c) for c in found.T.tolist()] == sorted(map(tuple, rows.T.tolist()))
    np.testing.assert_array_equal(found[:, inverse], rows)
    assert found.shape[1] == 4


def test_a_row_below_a_known_one_in_one_count_alone_is_not_known():
    kept = Budget(1.0, DELTA)
    kept._within = np.array([[5, 1]])
    assert kept._known(np.array([[5, 1], [3, 1], [5, 2], [1, 9]])).tolist() == [1, 1, -1, -1]
    kept._beyond = np.array([[9, 9]])
    assert kept._known(np.array([[9, 9], [9, 8], [12, 2]])).tolist() == [0, -1, -1]


@pytest.mark.parametrize("limit", [0.7, 1.5])
def test_along_the_whole_edge_of_two_laws(limit):
    """Every pair of counts around the line where the budget ends, asked from below, from above and one by one."""
    events = [GAUSSIAN, L1]
    grid = np.stack(np.meshgrid(np.arange(0, 160, 25), np.arange(0, 40, 5)), axis=-1).reshape(-1, 2)
    expected = np.array([literal(events, row.tolist(), limit) for row in grid])
    assert 0 < expected.sum() < len(grid)
    for order in (slice(None), slice(None, None, -1)):
        np.testing.assert_array_equal(Budget(limit, DELTA).keeps(events, grid[order].T), expected[order])
    alone = Budget(limit, DELTA)
    np.testing.assert_array_equal([alone.keeps(events, row[:, None])[0] for row in grid], expected)


@pytest.mark.parametrize("event", [GAUSSIAN, EVENTS[2], EVENTS[3]], ids=lambda event: event.mechanism)
def test_where_no_distribution_is_known_comparisons_decide(event, asked):
    counts = np.arange(1, 3000)
    yes = Budget(2.0, DELTA).keeps([event], counts[None])
    assert 0 < yes.sum() < len(counts)
    assert asked == []


def test_two_recipients_of_one_law_are_releases_of_one_kind(asked):
    limit = gaussian_epsilon(12.0, 10, DELTA) * (1 + 1e-4)
    events, counts = [GAUSSIAN, EVENTS[4]], np.array([[4, 5, 10, 0, 11], [6, 6, 0, 10, 0]])
    assert Budget(limit, DELTA).keeps(events, counts).tolist() == [True, False, True, True, False]
    assert asked == []
