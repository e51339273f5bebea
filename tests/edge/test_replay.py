"""F3CRec's client side against its equations written out, one client at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.replay import ReplayRule, memory_sizes, preference_shift, ranks, without_replacement
from privacy import keyed

scores = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0]), min_size=6, max_size=6), min_size=1, max_size=4)


@given(scores)
def test_ranks_count_what_is_better_or_equal_and_earlier(values: list[list[float]]) -> None:
    table = np.array(values, np.float32)
    places = np.tile(np.array([5, 0, 3, -1]), (len(table), 1))
    found = ranks(table, places)
    for row, mine in zip(table, found, strict=True):
        for place, rank in zip((5, 0, 3), mine, strict=False):
            ahead = sum(1 for j, v in enumerate(row) if v > row[place] or (v == row[place] and j < place))
            assert rank == ahead + 1
        assert mine[3] == 0


def test_shift_of_eq_2() -> None:
    # remembered in the order 1..4; now at ranks 2, 1, 10, 4: |2-1| + |1-2| + |10-3| + |4-4|
    assert preference_shift(np.array([[2, 1, 10, 4], [1, 2, 0, 0]])).tolist() == [9, 0]


def test_memory_of_eq_3_and_4() -> None:
    shifts, scale, size = np.array([0, 40, 567, 5000]), 0.006, np.full(4, 30)
    expected = [math.floor(30 * math.exp(-0.006 * s)) for s in shifts]
    assert memory_sizes(shifts, size, scale).tolist() == expected
    assert expected[0] == 30
    assert expected[2:] == [0, 0]


def test_draws_are_without_replacement_and_keyed() -> None:
    lists = np.array([[4, 7, 9, 2, 5]] * 3000, np.int32)
    lists[:, 4] = -1
    keys = keyed.fold(keyed.key(3, "replay", 1), np.arange(3000))
    drawn = without_replacement(keys, lists, np.full(3000, 2))
    assert (drawn.sum(1) == 2).all()
    assert not drawn[:, 4].any(), "an empty place was drawn"
    assert np.allclose(drawn[:, :4].mean(0), 0.5, atol=0.04), "not every item is equally likely"
    assert (without_replacement(keys, lists, np.full(3000, 2)) == drawn).all()
    alone = without_replacement(keys[17:18], lists[:1], np.array([2]))
    assert (alone[0] == drawn[17]).all(), "a client's draw depends on the others"


def rule(picks: str, size: int, weight: float = 0.5, reduction: str = "mean") -> ReplayRule:
    return ReplayRule(picks, size, 0.006, weight, reduction, seed=11)


def test_spp_compares_an_item_with_its_rank_in_its_own_proxy_list() -> None:
    """Two lists of three, whose items stood at 1 2 3 1 2 3: the third has fallen by one place, the fifth by three."""
    lists = np.tile(np.array([40, 41, 42, 43, 44, 45], np.int32), (4000, 1))
    now = np.tile(np.array([1, 2, 4, 1, 5, 3]), (4000, 1))
    drawn = rule("discrepancy", 3).chosen(lists, now, np.arange(4000), number=5)
    assert (drawn.sum(1) == 3).all(), "as many as one list holds"
    assert drawn[:, [2, 4]].all(), "what has fallen is as good as always drawn before what has not"
    assert np.allclose(drawn[:, [0, 1, 3, 5]].mean(0), 0.25, atol=0.04), "places that all were kept are alike"
    # one place is drawn: ln(1 + places lost) to ln(1 + places lost)
    one = np.where(np.arange(6) == 2, lists, -1)
    one[:, 5] = 45
    single = rule("discrepancy", 1).chosen(one, np.where(one >= 0, [0, 0, 2, 0, 0, 100], 0), np.arange(4000), number=5)
    assert abs(single[:, 2].mean() - math.log(2) / (math.log(2) + math.log(100))) < 0.03


def test_a_steady_taste_replays_the_whole_list_and_a_moved_one_less() -> None:
    lists = np.array([[3, 1, 4, 5], [3, 1, 4, 5], [3, 1, -1, -1]], np.int32)
    now = np.array([[1, 2, 3, 4], [1, 2, 3, 84], [1, 2, 0, 0]])
    drawn = rule("adaptive", 4).chosen(lists, now, np.arange(3), 1)
    assert drawn.sum(1).tolist() == [4, math.floor(4 * math.exp(-0.006 * 80)), 2]
    assert not drawn[2, 2:].any()


@pytest.mark.parametrize(("reduction", "expected"), [("mean", [0.25, 0.25, 0.5]), ("sum", [0.5, 0.5, 0.5])])
def test_replayed_examples_weigh_the_weight_in_all_or_each(reduction: str, expected: list[float]) -> None:
    lists = np.array([[7, 2, 9], [5, 6, -1], [8, -1, -1]], np.int32)
    labels = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0], [0.4, 0, 0]], np.float32)
    chosen = np.array([[True, False, True], [False, False, False], [True, False, False]])
    made = rule("all", 3, reduction=reduction).replay(lists, labels, chosen)
    assert [made.items[client].tolist() for client in range(3)] == [[7, 9], [], [8]]
    assert made.label.tolist() == labels[[0, 0, 2], [0, 2, 0]].tolist()
    assert made.weight.tolist() == expected
