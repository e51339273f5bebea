import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.ragged import Ragged
from edgefr.data.interactions import Catalogue, _by_user_and_time, k_core
from tests.data.tables import dataset

lists = st.lists(st.lists(st.integers(0, 1000), max_size=6), max_size=8)


@given(lists, st.data())
def test_ragged_is_a_list_of_lists(rows, data):
    ragged = Ragged.from_lists(rows)
    assert len(ragged) == len(rows)
    assert [ragged[i].tolist() for i in range(len(rows))] == rows
    assert ragged.counts.tolist() == [len(r) for r in rows]
    assert ragged.rows.tolist() == [i for i, r in enumerate(rows) for _ in r]
    assert ragged.offsets.dtype == np.int64
    ids = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10)) if rows else []
    taken = ragged.take(ids)
    assert [taken[i].tolist() for i in range(len(ids))] == [rows[i] for i in ids]


@given(lists)
def test_from_sorted_rebuilds_what_rows_and_values_say(rows):
    ragged = Ragged.from_lists(rows)
    again = Ragged.from_sorted(ragged.rows, ragged.values, len(rows))
    assert again.offsets.tolist() == ragged.offsets.tolist()


def test_ragged_rows_are_views_and_end_where_the_rows_end():
    ragged = Ragged.from_lists([[1, 2], [3]])
    ragged[0][1] = 9
    assert ragged.values.tolist() == [1, 9, 3]
    assert ragged[-1].tolist() == [3]
    with pytest.raises(IndexError):
        ragged[2]


def test_statistics_count_what_is_there():
    rows = [(0, 0, 1), (0, 3, 2), (0, 0, 3), (2, 1, 5)]
    table = dataset(rows, users=4, items=5, domain=[0, 0, 0, 1, 1], domains=("a", "b"))
    found = table.statistics()
    assert (found["users"], found["items"], found["listed_items"]) == (2, 3, 5)
    assert (found["interactions"], found["repeated_pairs"]) == (4, 1)
    assert found["density"] == pytest.approx(3 / (2 * 3))
    assert found["items_per_user"] == {"min": 1, "median": 1.5, "mean": 1.5, "max": 2}
    assert found["users_in_several_domains"] == 1
    assert found["domains"]["b"] == {"users": 1, "items": 1, "interactions": 1}
    assert found["time"] == [1, 5]


def test_statistics_of_nothing():
    assert dataset([], users=2, items=3).statistics()["density"] == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_k_core_against_dropping_one_kind_at_a_time(pairs, users, items):
    user, item = np.array(pairs, np.int64).reshape(-1, 2).T
    left = list(range(len(pairs)))
    while True:
        enough = [r for r in left if sum(pairs[q][0] == pairs[r][0] for q in left) >= users]
        fewer = [r for r in enough if sum(pairs[q][1] == pairs[r][1] for q in enough) >= items]
        if fewer == left:
            break
        left = fewer
    assert np.flatnonzero(k_core(user, item, users, items)).tolist() == left


def test_titles_of_any_source_can_be_shown():
    titles = ["Heat\x1b]0;hereHeat\x07", "Heat\nand dust", "Ran"]
    shown = Catalogue(np.array(["1", "2", "3"]), titles, titles, np.zeros(3, np.uint8))
    assert shown.title == ["Heat]0;hereHeat", "Heat and dust", "Ran"]
    assert all(title.isprintable() for title in shown.take(np.array([1, 0])).title)


@pytest.mark.parametrize("span", [1, 5, 2**31, 2**61, 2**63 - 1])
def test_rows_are_sorted_as_lexsort_sorts_them(span):
    draw = np.random.default_rng(0)
    user, time = draw.integers(0, 9, 500), draw.integers(0, span, 500) - span // 2
    assert np.array_equal(_by_user_and_time(user, time), np.lexsort((time, user)))
