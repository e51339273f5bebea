"""References over sessions and metrics of repeats and new items apart, by hand and on the released XING sessions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.ragged import Ragged
from edgefr.data.datasets import load
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.evaluation.references import had, repeats
from tests.data.tables import dataset

SESSIONS = [
    (0, [0, 1, 2, 0]),
    (0, [3, 1]),
    (0, [4, 0]),  # validation: the target was had in training
    (0, [2, 5, 5]),  # test: the target was had in this session alone
    (1, [1, 2]),
    (1, [4, 5, 2]),
    (1, [0, 3]),  # validation: new
    (1, [1, 0]),  # test: had in the validation session alone
]


@pytest.fixture(scope="module")
def made():
    """(split, sessions) of the sessions above; 0..5 are all trained."""
    rows = [(u, i, 6000 * n + 60 * at) for n, (u, session) in enumerate(SESSIONS) for at, i in enumerate(session)]
    return SessionsProtocol(negatives=1).apply(dataset(rows, users=3, items=6), 0)


def test_what_a_user_had_had(made):
    split, sessions = made

    def rows(which, scope):
        found = had(split, sessions, which, scope)
        return [found[u].tolist() for u in range(3)]

    assert rows("test", "train") == rows("valid", "train") == [[0, 1, 2, 3], [1, 2, 4, 5], []]
    assert rows("test", "session") == [[0, 1, 2, 3, 5], [1, 2, 4, 5], []]
    assert rows("valid", "session") == rows("valid", "all") == [[0, 1, 2, 3, 4], [0, 1, 2, 4, 5], []]
    assert rows("test", "all") == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], []]


def test_which_targets_are_repeats(made):
    split, sessions = made
    test, valid = repeats(split, sessions, "test"), repeats(split, sessions, "valid")
    assert (test.train.tolist(), test.session.tolist()) == ([False, False], [True, False])
    assert (valid.train.tolist(), valid.session.tolist()) == ([True, False], [False, False])
    assert test.shares() == {"train": 0.0, "session": 0.5, "seen": 0.5, "new": 0.5}


def test_seen_items_come_first_then_popularity(made):
    split, sessions = made
    users = np.array([1, 0])
    popular = references.popularity(split)
    assert popular(users, None)[0].tolist() == [1, 2, 2, 1, 1, 1]
    # had by user 1: 1 2 4 5, by user 0 with the session: 0 1 2 3 5; the lead is 1 + the widest difference, 1 + 1
    score = references.seen_then_popularity(split, had(split, sessions, "test"))
    assert score(users, None).tolist() == [[1, 4, 4, 1, 3, 3], [3, 4, 4, 3, 1, 3]]
    some = score(users, np.array([[0, 5], [4, 0]], np.int32))
    assert some.tolist() == [[1, 2], [1, 2]]  # among the candidates alone
    assert references.seen_then_popularity(split)(users, None)[1].tolist() == [3, 4, 4, 3, 1, 1]
    other = references.with_history(popular, 0.5, had(split, sessions, "test"), split)
    assert other(users, None)[0].tolist() == [1, 2.5, 2.5, 1, 1.5, 1.5]


def test_the_last_item_and_what_shared_a_session_with_it(made):
    """Training: 0 1 2 0, 3 1, 1 2, 4 5 2. The last items before the test targets: 5 of user 0, 1 of user 1."""
    split, sessions = made
    lead = 4  # one more than there are users
    score = references.last_item_cooccurrence(split, sessions, "test")
    popular = np.array([1, 2, 2, 1, 1, 1])
    expected = np.array([[0, 0, 1, 0, 1, 1], [1, 3, 2, 1, 0, 0], [0] * 6]) * lead + popular
    assert score(np.array([0, 1, 2]), None).tolist() == expected.tolist()
    assert score(np.array([1]), np.array([[3, 1, 5]], np.int32)).tolist() == [expected[1, [3, 1, 5]].tolist()]


@pytest.fixture(scope="module")
def sparse():
    """The sessions above in a catalogue of twice the items, of which every second one is in no session at all."""
    rows = [
        (u, 2 * i + 1, 6000 * n + 60 * at) for n, (u, session) in enumerate(SESSIONS) for at, i in enumerate(session)
    ]
    return SessionsProtocol(negatives=3, candidates="any").apply(dataset(rows, users=3, items=13), 0)


def test_references_are_alike_for_candidates_and_for_a_pool_smaller_than_the_catalogue(made, sparse):
    """Numbers of items are not columns of the pool: what is scored of some items is what the pool has of them."""
    users = np.array([1, 0])
    vectors = np.random.default_rng(0).normal(size=(13, 4)).astype(np.float32)
    of_six = [[0, 3, 5], [4, 2, 1]]
    asked = 2 * np.array(of_six, np.int32) + 1

    def every(split, sessions):
        popular, known = references.popularity(split), had(split, sessions, "test")
        return {
            "popularity": popular,
            "seen": references.seen_then_popularity(split, known),
            "history": references.with_history(popular, 0.5, known, split),
            "weighed": references.with_popularity(references.text_mean(vectors, split), 0.3, split),
            "ties": references.ties_by_chance(popular, 0, split),
            "cooccurrence": references.last_item_cooccurrence(split, sessions, "test"),
        }

    few, all_of_them = every(*sparse), every(*made)
    assert sparse[0].pool.tolist() == [1, 3, 5, 7, 9, 11]
    for name, score in few.items():
        whole = np.asarray(score(users, None))
        chosen = np.take_along_axis(whole, np.array(of_six), axis=1)
        if name == "seen":  # the lead of what was had is that among the items that are scored
            chosen = all_of_them[name](users, np.array(of_six, np.int32))
        np.testing.assert_allclose(score(users, asked), chosen, atol=1e-6, err_msg=name)
    for name in ("popularity", "seen", "history", "cooccurrence"):
        np.testing.assert_array_equal(few[name](users, None), all_of_them[name](users, None), err_msg=name)


@given(st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=5), min_size=4, max_size=7), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_cooccurrence_is_that_of_a_literal_count(lists, seed):
    lists = [*lists, lists[0]]  # so that the last session is known
    rows = [(0, i, 6000 * n + 60 * at) for n, session in enumerate(lists) for at, i in enumerate(session)]
    protocol = SessionsProtocol(negatives=1, candidates="any")
    if len({i for session in lists[:-2] for i in session}) < 2:
        return
    split, sessions = protocol.apply(dataset(rows, users=1, items=6), seed)
    last = lists[0][-2]
    found = references.last_item_cooccurrence(split, sessions, "test")(np.array([0]), None)[0]
    together = [sum(last in session and i in session for session in lists[:-2]) for i in split.pool]
    assert found.tolist() == [2 * count + 1 for count in together]  # one user: everything is as popular


def test_ties_fall_by_chance_but_always_alike(made):
    split, _ = made
    users = np.array([0, 1])
    one, again, other = (references.ties_by_chance(references.popularity(split), s, split) for s in (0, 0, 1))
    assert (one(users, None) == again(users, None)).all()
    assert (one(users, None) != other(users, None)).any()
    assert (np.floor(one(users, None)) == references.popularity(split)(users, None)).all()
    some = one(users, np.array([[1, 4], [0, 5]], np.int32))
    assert (some[0] == one(users, None)[0, [1, 4]]).all()


def test_holds_at_the_edges(made):
    split, _ = made
    none = references.holds(Ragged.empty(3), np.array([2, 0]), np.array([[1, 2], [0, 3]], np.int32), split)
    assert not none.any()
    assert references.holds(Ragged.from_lists([[9, 5]]), np.array([0]), None, split).tolist() == [[False] * 5 + [True]]


def test_items_that_users_have_had_are_not_those_of_the_next_user():
    """What is asked about has smaller numbers than what was had: nobody's items may run into another row."""
    nothing = np.zeros((6, 2), np.int32) + np.array([0, 1], np.int32)
    had_one = Ragged.from_lists([[9], [], [8], [], [], [1]])
    found = references.holds(had_one, np.arange(6), nothing, None)
    assert found.tolist() == [[False, False]] * 5 + [[False, True]]


def test_a_score_that_is_the_same_for_every_item_leaves_popularity_alone(made):
    split, _ = made
    score = references.with_popularity(lambda users, items: np.full((len(users), 6), 3.0), 0.5, split)
    assert score(np.array([0, 1]), None) == pytest.approx(np.tile(0.5 * np.log1p([1, 2, 2, 1, 1, 1]), (2, 1)))


@pytest.fixture(scope="module")
def xing(archives):
    table = load("xing", archives)
    return [SessionsProtocol().apply(table, seed) for seed in range(4)]


def mean(xing, which, scorer):
    """Mean (HR@10, NDCG@10) over the candidates of the seeds; ties by chance."""
    found = []
    for seed, (split, sessions) in enumerate(xing):
        score = references.ties_by_chance(scorer(split, sessions), seed, split)
        found.append(evaluate(score, split, which, "sampled").metrics([10]))
    return pytest.approx((np.mean([m["HR@10"] for m in found]), np.mean([m["NDCG@10"] for m in found])), abs=0.012)


def nothing(split, sessions):
    return lambda users, items: np.zeros(items.shape)


def test_xing_references_are_those_of_the_handbook(xing):
    """HR@10 and NDCG@10 that others measured on the released sessions, 1 + 100 candidates of their own drawing."""
    assert mean(xing, "test", nothing) == (0.101, 0.045)
    assert mean(xing, "test", lambda split, _: references.popularity(split)) == (0.210, 0.105)
    own = mean(xing, "test", lambda split, _: references.seen_first(nothing(split, _), split.train, split))
    assert own == (0.291, 0.247)
    for which, expected in (("test", (0.475, 0.411)), ("valid", (0.625, 0.570))):
        assert expected == mean(
            xing, which, lambda split, s, w=which: references.seen_then_popularity(split, had(split, s, w))
        )
    # without the session that is asked about, the same rule finds far less
    assert mean(xing, "test", lambda split, _: references.seen_then_popularity(split)) == (0.369, 0.289)


def test_xing_shares_of_repeats(xing):
    split, sessions = xing[0]
    test, valid = repeats(split, sessions, "test").shares(), repeats(split, sessions, "valid").shares()
    assert (round(test["train"], 3), round(valid["train"], 3)) == (0.211, 0.273)
    assert (round(test["session"], 3), round(valid["session"], 3)) == (0.171, 0.246)


def test_xing_negatives_give_repeats_away(xing):
    """No negative was had in training, so every repeat of a training item stands first."""
    split, sessions = xing[0]
    score = references.seen_then_popularity(split, split.train)
    found, of = evaluate(score, split, "test", "sampled"), repeats(split, sessions, "test")
    assert (found.ranks[of.train] == 1).all()
    assert (found.ranks[~of.train] > 1).any()
