"""A hold-out keeps several items of a user back, and nobody who trains knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edge.ragged import Ragged
from edgefr.data.interactions import Dataset
from edgefr.data.splits.holdout import Holdout
from edgefr.data.splits.split import Split
from edgefr.metrics.settings import EvaluationSection
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.hybrid import recency
from edgefr.simulation.evaluation.measure import MeasurementPlace, Measurements
from privacy.errors import InputError
from tests.data.tables import dataset

BY = ("ratio", "time", "cold-items", "column")
Row = tuple[int, int, int]


def cut(table: Dataset, by: str, seed: int = 0, **shares: float) -> Split:
    return Holdout(by=by, **shares).apply(table, seed)[0]


def lists(rows: Ragged) -> list[list[int]]:
    return [rows[user].tolist() for user in range(len(rows))]


def with_parts(rows: Sequence[Row], parts: Sequence[int], users: int, items: int) -> Dataset:
    """Return a data set without a clock, by user and time, with a part for every row."""
    order = sorted(range(len(rows)), key=lambda at: (rows[at][0], rows[at][2]))
    table = dataset([rows[at] for at in order], users, items, clock=False)
    return replace(table, part=np.array([parts[at] for at in order], np.uint8))


FILM_FANS = [
    *((0, item, 10 + item) for item in range(10)),  # ten items at 10, 11, ..., 19
    *((1, item, 5 + item) for item in (2, 4, 6, 8)),  # at 7, 9, 11, 13
    (2, 0, 30),  # came late
    (2, 11, 31),
    (0, 3, 40),  # once more, which counts at its first time
]


def test_a_ratio_holds_out_the_newest_of_every_user_by_hand() -> None:
    split, words = Holdout(valid=0.2, test=0.3).apply(dataset(FILM_FANS, 4, 12), 0)
    assert lists(split.train) == [[0, 1, 2, 3, 4], [2, 4], [0, 11], []]
    assert lists(split.lists("valid")) == [[5, 6], [6], [], []]
    assert lists(split.lists("test")) == [[7, 8, 9], [8], [], []]
    assert (split.valid.tolist(), split.test.tolist()) == ([5, 6, -1, -1], [7, 8, -1, -1])
    assert split.pool.tolist() == split.drawn.tolist() == list(range(12))
    assert "hold-out by ratio: 2 of 3 users are tested on 4 items, 100.0% of which nobody trains on" in words


def test_one_moment_cuts_for_everybody_by_hand() -> None:
    split, words = Holdout(by="time", valid=0.25, test=0.25).apply(dataset(FILM_FANS, 4, 12), 0)
    # 16 first times: 7 9 10 11 11 12 13 13 14 15 16 17 18 19 30 31; a quarter is 4, so from 18 on, and from 14 on
    assert lists(split.train) == [[0, 1, 2, 3], [2, 4, 6, 8], [], []]
    assert lists(split.lists("valid")) == [[4, 5, 6, 7], [], [], []]
    assert lists(split.lists("test")) == [[8, 9], [], [], []]
    assert split.drawn.tolist() == [0, 1, 2, 3, 4, 6, 8]
    assert split.pool.tolist() == list(range(12))
    assert "1 of 3 users are tested on 2 items, 50.0% of which nobody trains on" in words
    assert "before 1970-01-01T00:00:14 trains, what came before 1970-01-01T00:00:18 validates" in words
    assert "1 user with nothing to train on are not asked about" in words


def test_nobody_trains_on_a_cold_item_by_hand() -> None:
    table = dataset(FILM_FANS, 4, 12)
    split, words = Holdout(by="cold-items", valid=0.2, test=0.2).apply(table, 3)
    cold = [set(split.lists(which).values.tolist()) for which in ("valid", "test")]
    assert not cold[0] & cold[1]
    assert set(split.pool.tolist()) == set(range(12)) - set(split.drawn.tolist())
    assert cold[0] | cold[1] <= set(split.pool.tolist())
    assert len(split.pool) == 4  # a fifth of 11 items that anybody had, rounded down, twice
    assert 10 in split.drawn, "an item that nobody ever had is not asked about"
    assert split.cold
    assert set(split.train.values.tolist()).isdisjoint(split.pool.tolist())
    assert "2 of the 11 items that anybody had test and 2 validate" in words
    assert "100.0% of which nobody trains on" in words
    assert "full ranking: the held-out items alone" in words
    assert cut(table, "cold-items", 3).pool.tolist() != cut(table, "cold-items", 4).pool.tolist()


def test_a_column_says_what_is_held_out_by_hand() -> None:
    rows = [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 4, 0), (1, 2, 1), (2, 0, 0), (2, 1, 1)]
    split = cut(with_parts(rows, [0, 0, 1, 2, 2, 2, 0, 2], 3, 5), "column")
    assert lists(split.train) == [[0, 1], [], [0]]
    assert lists(split.lists("valid")) == [[2], [], []]
    assert lists(split.lists("test")) == [[3], [], [1]], "who has nothing to train on is not asked about"
    split, words = Holdout(by="column").apply(with_parts(rows, [0, 0, 0, 2, 2, 2, 0, 2], 3, 5), 0)
    assert lists(split.lists("valid")) == [[2], [], []], "the newest training item, of those who keep another one"
    assert lists(split.train) == [[0, 1], [], [0]]
    assert "names nothing to validate on: the newest training item" in words


many = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 14), st.integers(0, 30)), min_size=6, max_size=70)
shares = st.sampled_from([0.01, 0.1, 0.25, 0.29, 0.4])


@given(many, st.sampled_from(BY), shares, shares, st.booleans(), st.integers(0, 3), st.data())
@settings(max_examples=200, deadline=None)
def test_nothing_that_is_held_out_is_trained_on(rows, by, valid, test, clock, seed, data) -> None:
    table = dataset(rows, 6, 18, clock=clock)
    own = {} if by == "column" else {"valid": valid, "test": test}
    if by == "column":
        parts = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
        table = replace(table, part=np.array(parts, np.uint8))
    try:
        split = cut(table, by, seed, **own)
    except InputError:
        assume(False)
        return
    train, held = split.train, {which: split.lists(which) for which in ("valid", "test")}
    for user in range(6):
        mine = [train[user].tolist(), held["valid"][user].tolist(), held["test"][user].tolist()]
        together = [item for part in mine for item in part]
        had = set(table.item[table.user == user].tolist())
        assert len(together) == len(set(together)), "an item is in one part"
        assert set(together) == had or not mine[0], "what a user had is somewhere"
        assert set(together) <= had
        assert mine[0] or not (mine[1] or mine[2]), "who has nothing to train on is not asked about"
        if by == "ratio" and len(had) >= 3:
            sizes = [max(1, int(Fraction(str(share)) * len(had))) for share in (valid, test)]
            assert [len(mine[1]), len(mine[2])] == sizes
        for which, first in (("valid", split.valid), ("test", split.test)):
            assert first[user] == next(iter(held[which][user].tolist()), -1)
            table_of = split.valid_candidates if which == "valid" else split.test_candidates
            if first[user] >= 0:
                drawn = table_of[int(np.searchsorted(split.users(which), user))].tolist()
                assert drawn[0] == first[user]
                assert not set(drawn[1:]) & had, "an item that the user has is no negative"
    asked = np.concatenate([held["valid"].values, held["test"].values])
    assert np.isin(asked, split.pool).all()
    assert np.isin(train.values, split.drawn).all()
    if by == "cold-items":
        assert not np.isin(split.pool, split.drawn).any()
        assert not set(held["valid"].values.tolist()) & set(held["test"].values.tolist())
    if by == "time":
        when = {(u, i): t for u, i, t in sorted(rows, key=lambda row: -row[2])}
        times = [
            [when[u, i] for u, i in zip(part.rows.tolist(), part.values.tolist(), strict=True)]
            for part in (train, held["valid"], held["test"])
        ]
        assert max(times[0]) < min(times[1])
        assert max(times[1]) < min(times[2])
        assert set(split.drawn.tolist()) == set(train.values.tolist()), "no negative comes from a time to come"


@given(many, st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_without_a_clock_a_ratio_draws_by_user_and_item_alone(rows, seed) -> None:
    """Somebody more changes nobody's split, as leave-one-out's and blocks' draws do not."""
    least = [(user, item, 0) for user in (0, 1) for item in range(5)]
    one = cut(dataset([*least, *rows], 7, 18, clock=False), "ratio", seed)
    two = cut(dataset([*least, *rows, *((6, item, 0) for item in range(6))], 7, 18, clock=False), "ratio", seed)
    for which in ("valid", "test"):
        assert lists(one.lists(which))[:6] == lists(two.lists(which))[:6]


@pytest.mark.parametrize("by", ["ratio", "time", "column"])
def test_others_in_place_of_what_is_held_out_change_nothing_that_learns(by: str) -> None:
    """Popularity, recency and what training draws from know nothing of it."""
    draw = np.random.default_rng(1)
    rows = [(u, int(i), int(u + 10 * k)) for u in range(8) for k, i in enumerate(draw.permutation(12)[:9])]
    parts = [(0, 0, 0, 0, 0, 0, 1, 2, 2)[k] for _ in range(8) for k in range(9)]
    table = dataset(rows, 8, 30)
    if by == "column":
        table = replace(table, part=np.array(parts, np.uint8))
    split = cut(table, by)
    trained = set(zip(split.train.rows.tolist(), split.train.values.tolist(), strict=True))
    kept = np.array([pair in trained for pair in zip(table.user.tolist(), table.item.tolist(), strict=True)])
    others = np.where(kept, table.item, 12 + np.arange(len(kept)) % 18).astype(np.int32)
    other = cut(replace(table, item=others), by)
    assert lists(other.train) == lists(split.train)
    assert other.drawn.tolist() == split.drawn.tolist()
    assert lists(other.lists("test")) != lists(split.lists("test"))
    asked = np.arange(8)
    scores = [references.popularity(one)(asked, None).tolist() for one in (split, other)]
    assert scores[0] == scores[1]
    newest = [recency(one, of).tolist() for one, of in ((split, table), (other, replace(table, item=others)))]
    assert newest[0] == newest[1]


def test_several_items_are_ranked_together_by_hand() -> None:
    """Scores fall with the item's number; the validation item is not ranked in the test, nor are training items."""
    nobody = np.empty((0, 1), np.int32)
    several = Ragged.from_lists([[2], [0]]), Ragged.from_lists([[3, 9], [1]])
    pool, train = np.arange(10, dtype=np.int32), Ragged.from_lists([[0, 1], [5]])
    first = np.array([2, 0], np.int32), np.array([3, 1], np.int32)
    split = Split("main", train, Ragged.empty(2), *first, pool, nobody, nobody, several=several)
    measured = Measurements(EvaluationSection(k=[1, 3]), 0)
    found = measured.candidates(
        MeasurementPlace("own", "main"), split, lambda users, items: -np.tile(pool, (len(users), 1)), "test", full=False
    )
    # user 0 is asked for 3 (first of 3, 4, ...) and 9 (last); user 1 for 1, which 0 would be ahead of: it validates
    assert found["HR@1"] == 1.0
    assert found["Recall@1"] == (0.5 + 1) / 2
    assert found["NDCG@3"] == pytest.approx((1 / (1 + 1 / np.log2(3)) + 1) / 2)
    assert {(row["ranking"], row["mask"]) for row in measured.rows} == {("full", "history")}
    assert measured.table(ranking="full")["main"]["own"] == found


def test_what_cannot_be_cut_is_refused_in_a_line() -> None:
    order, clock = dataset(FILM_FANS, 4, 12, clock=False), dataset(FILM_FANS, 4, 12)
    for table, by, why in (
        (order, "time", "'hand-made' has no clock times; use protocol.by=ratio"),
        (clock, "column", "'hand-made' has no split of single interactions: name a column"),
        (dataset([(0, 0, 1), (1, 1, 1)], 2, 3), "time", "protocol.by=time leaves nothing to validate on"),
        (dataset([(0, 0, 1), (0, 1, 2)], 1, 3), "ratio", "protocol.by=ratio leaves nothing to validate on"),
        (dataset([(0, 0, 1)], 1, 1), "cold-items", "protocol.by=cold-items leaves nothing to validate on"),
        (replace(clock, part=np.zeros(len(clock.user), np.uint8)), "column", "leaves nothing to validate on"),
        (
            replace(clock, part=np.zeros(len(clock.user), np.uint8), session=np.arange(len(clock.user))),
            "column",
            "has a split of sessions or blocks",
        ),
    ):
        with pytest.raises(InputError, match=why):
            cut(table, by)
    with pytest.raises(ValueError, match="nothing reads it where by is column"):
        Holdout(by="column", test=0.2)
