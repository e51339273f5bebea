from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.ragged import Ragged
from edgefr.data.splits import candidates
from edgefr.data.splits.candidates import Candidates, sample_negatives


@given(st.data())
@settings(max_examples=60)
def test_draws_are_free_and_different_up_to_the_very_last_item(data):
    pool = data.draw(st.integers(2, 40))
    owned = data.draw(st.lists(st.sets(st.integers(0, pool - 1), max_size=pool - 1), min_size=1, max_size=5))
    count = data.draw(st.integers(1, pool - max(map(len, owned))))
    drawn = sample_negatives(7, range(len(owned)), Ragged.from_lists([sorted(o) for o in owned]), pool, count)
    assert drawn.shape == (len(owned), count)
    for row, own in zip(drawn.tolist(), owned, strict=True):
        assert len(set(row)) == count
        assert set(row) <= set(range(pool)) - own


@pytest.mark.parametrize(("pool", "count"), [(7, 2), (24, 2)])  # by sorting, by rejection
def test_every_set_of_free_items_is_equally_likely(pool, count):
    owned, n = [0, 3], 60_000
    drawn = sample_negatives(1, range(n), Ragged.from_lists([owned] * n), pool, count)
    seen = Counter(map(tuple, np.sort(drawn, axis=1).tolist()))
    sets = list(combinations([i for i in range(pool) if i not in owned], count))
    expected = n / len(sets)
    chi2 = sum((seen[s] - expected) ** 2 / expected for s in sets)
    assert sum(seen[s] for s in sets) == n
    assert chi2 < len(sets) + 5 * np.sqrt(2 * len(sets))


def test_a_users_draw_depends_on_the_user_alone(monkeypatch):
    owned = Ragged.from_lists([list(range(u % 30)) for u in range(50)])
    whole = sample_negatives(3, range(50), owned, 60, 12)
    some = np.array([41, 7, 29])
    assert (sample_negatives(3, some, owned.take(some), 60, 12) == whole[some]).all()
    monkeypatch.setattr(candidates, "_USERS_AT_ONCE", 4)
    monkeypatch.setattr(candidates, "_SCORES_AT_ONCE", 100)
    assert (sample_negatives(3, range(50), owned, 60, 12) == whole).all()
    assert (sample_negatives(4, range(50), owned, 60, 12) != whole).any()


def test_no_draw_is_ever_owned_or_drawn_twice_when_most_have_to_be_drawn_again():
    """50 of 300 with 100 owned: nearly every row has draws that do not fit, many of them several times."""
    owned = Ragged.from_lists([sorted(range(u % 7, 300, 3)) for u in range(400)])
    drawn = sample_negatives(5, range(400), owned, 300, 50)
    assert all(len(set(row)) == 50 for row in drawn.tolist())
    assert not any(set(row) & set(owned[u].tolist()) for u, row in enumerate(drawn.tolist()))


@pytest.mark.parametrize("pool", [np.arange(60), np.arange(5, 125, 2)])
def test_rows_of_a_table_are_the_same_whenever_they_are_asked_for(pool):
    rng = np.random.default_rng(0)
    own = [rng.choice(pool, 2 + u % 20, replace=False) for u in range(30)]
    train = Ragged.from_lists([row[2:] for row in own])
    valid, test = (np.array([row[at] for row in own], np.int32) for at in (0, 1))
    users = np.arange(1, 30, 2)
    table = Candidates(9, users, test, train, (valid, test), pool.astype(np.int32), 8)
    whole = np.asarray(table)
    assert whole.shape == table.shape == (len(table), 9)
    assert whole.dtype == table.dtype == np.int32
    assert (whole[:, 0] == test[users]).all()
    for user, row in zip(users.tolist(), whole.tolist(), strict=True):
        assert len(set(row)) == 9
        assert set(row) <= set(pool.tolist())
        assert not set(row[1:]) & set(own[user].tolist())
    assert (table[:] == whole).all()
    assert (table[np.array([7, 2, 7])] == whole[[7, 2, 7]]).all()
    assert (table[-1] == whole[-1]).all()
    assert (table[3:6] == whole[3:6]).all()
    with pytest.raises(IndexError):
        table[len(users)]
