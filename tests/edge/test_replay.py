"""F3CRec's client side against its equations written out, one client at a time."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge.replay import memory_sizes, preference_shift, ranks, without_replacement
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


def test_weights_make_items_likelier() -> None:
    lists = np.tile(np.arange(3, dtype=np.int32), (4000, 1))
    keys = keyed.fold(keyed.key(5, "replay", 1), np.arange(4000))
    one = without_replacement(keys, lists, np.ones(4000, np.int64), np.tile([1.0, 2.0, 5.0], (4000, 1)))
    assert np.allclose(one.mean(0), [1 / 8, 2 / 8, 5 / 8], atol=0.03)
