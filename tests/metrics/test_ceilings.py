"""Central ceilings: item-kNN and EASE by hand, blind to held-out items, and left out where they do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloud.references.ease import weights
from edge.ragged import Ragged
from edgefr.data.datasets import load
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.blocks import Blocks
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.metrics.settings import CEILINGS, EASE, ITEM_KNN
from edgefr.simulation.evaluation import ceilings as of
from edgefr.simulation.evaluation.references import had
from edgefr.simulation.stages.leave_one_out import split_references
from tests.data.tables import dataset

POOL = np.arange(5, dtype=np.int32)
FOUR = Ragged.from_lists([[0, 1], [0, 1, 2], [1, 2], [3]])
"""Item 0 has 2 users, item 1 has 3, item 2 has 2, item 3 has 1, item 4 none."""


@pytest.fixture(scope="module")
def split():
    (made,) = LeaveOneOut(negatives=20).apply(load("demo", options={"users": 60, "items": 120}), 0)
    return made


def scores(train, known, pool=POOL, name=ITEM_KNN):
    task = type("Task", (), {"pool": pool})()
    return of.ceilings(task, train, known)[name](np.arange(len(known)), None)


def test_item_knn_of_four_users_by_hand():
    near, far = (
        2 / (6**0.5 + 10),
        1 / (2 + 10),
    )  # 0 with 1, and 1 with 2: two of 2 and 3 users; 0 with 2: one of 2 and 2
    expected = [
        [near, near, far + near, 0, 0],
        [near + far, 2 * near, near + far, 0, 0],
        [near + far, near, near, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(scores(FOUR, FOUR), expected, atol=2e-6)


def test_of_equals_the_more_popular_comes_first():
    unknown = scores(FOUR, Ragged.empty(1))[0]
    assert np.argsort(-unknown, kind="stable").tolist() == [1, 0, 2, 3, 4]
    assert unknown.max() < 1e-6


def test_large_catalogues_are_sparse_and_say_the_same(monkeypatch):
    dense = scores(FOUR, FOUR)
    monkeypatch.setattr(of, "MOST_DENSE", 4)
    np.testing.assert_allclose(scores(FOUR, FOUR), dense, atol=1e-6)
    task = type("Task", (), {"pool": POOL})()
    assert list(of.ceilings(task, FOUR, FOUR)) == [ITEM_KNN]
    monkeypatch.setattr(of, "MOST_PAIRS", 17)  # 4 + 9 + 4 + 1 pairs
    assert of.ceilings(task, FOUR, FOUR) == {}
    assert of.ceilings(task, Ragged.empty(3), FOUR) == {}


def test_ease_is_the_closed_form_of_the_training_matrix():
    had_by = np.zeros((4, 5))
    had_by[FOUR.rows, FOUR.values] = 1
    np.testing.assert_allclose(scores(FOUR, FOUR, name=EASE), had_by @ weights(had_by, 200.0), atol=1e-6)


def test_a_pool_may_be_part_of_the_items_and_an_item_had_twice_counts_once():
    twice, known = Ragged.from_lists([[0, 2, 2], [2, 4]]), Ragged.from_lists([[2, 2, 1]])
    pool = np.array([0, 2, 4], np.int32)
    near = 1 / (2**0.5 + 10)
    np.testing.assert_allclose(scores(twice, known, pool), [[near, 0, near]], atol=2e-6)
    np.testing.assert_array_equal(scores(twice, known, pool), scores(twice, Ragged.from_lists([[2]]), pool))


def test_chosen_items_score_as_in_the_pool():
    table = load("demo", options={"users": 60, "items": 120})
    target = CrossDomain(source="books", target="films", negatives=20).apply(table, 0)[1]
    users, chosen = target.users("test"), np.asarray(target.test_candidates)
    at = np.searchsorted(target.pool, chosen)
    for score in of.ceilings(target, target.train, target.train).values():
        np.testing.assert_array_equal(score(users, chosen), np.take_along_axis(score(users, None), at, axis=1))


def test_held_out_items_move_nothing(split):
    """Every user's held-out items are others: what is said of every item is the same, by each reference."""
    table = load("demo", options={"users": 60, "items": 120})
    users, prepared = np.arange(60), Prepared(table, {"main": split}, "")
    plain = split_references(split, prepared, 0)
    assert {*CEILINGS, "TF-IDF mean"} <= plain.keys()
    moved = replace(split, test=np.where(split.test < 0, -1, (split.test + 1) % 120).astype(np.int32))
    for name, score in split_references(moved, prepared, 0).items():
        np.testing.assert_array_equal(score(users, None), plain[name](users, None), err_msg=name)
    blind = replace(split, valid=moved.test)
    for name in (*CEILINGS, "TF-IDF mean"):
        score = split_references(blind, prepared, 0)[name]
        np.testing.assert_array_equal(score(users, None), plain[name](users, None), err_msg=name)


def test_a_planted_pair_of_a_held_out_item_is_not_learned():
    """Everybody ends with items 3 and 4, and has 0 and one of 1, 2 before: nobody's training has 3 or 4."""
    rows = [(u, i, t) for u in range(12) for t, i in enumerate([0, 1 + u % 2, 3, 4])]
    table = dataset(rows, users=12, items=6)
    (made,) = LeaveOneOut(negatives=1).apply(table, 0)
    assert set(made.test.tolist()) == {4}
    found = split_references(made, Prepared(table, {"main": made}, ""), 0)
    for name in CEILINGS:
        said = found[name](np.arange(12), None)
        assert np.all(said[:, 3:] == 0), name
        assert np.any(said[:, :3] > 1e-4), name


def test_a_held_out_session_is_known_up_to_what_is_asked():
    """User 0's test session is 2, 3 and then 5, which is asked; item 5 was trained by user 1 alone."""
    sessions = [(0, [0, 1, 6]), (0, [1, 0]), (0, [2, 3, 5]), (1, [4, 5, 3, 2, 0, 1]), (1, [2, 0]), (1, [1, 4])]
    rows = [(u, i, 6000 * n + 60 * at) for n, (u, session) in enumerate(sessions) for at, i in enumerate(session)]
    made, held = SessionsProtocol(negatives=1).apply(dataset(rows, users=2, items=7), 0)
    known = had(made, held, "test", "all")
    assert known[0].tolist() == [0, 1, 2, 3, 6]
    assert made.test[0] == 5
    train, planted = of.ceilings(made, made.train, known), replace(made, test=np.array([4, 4], np.int32))
    for name in CEILINGS:
        np.testing.assert_array_equal(
            train[name](np.array([0]), None), of.ceilings(planted, planted.train, known)[name](np.array([0]), None)
        )


def test_a_block_learns_from_what_was_trained_on_so_far():
    from edgefr.simulation.stages.blocks import BlockStage

    table = load("demo", options={"users": 60, "items": 120, "interactions": 20})
    _, later = Blocks(min_interactions=1, increments=1).apply(table, 0)
    past = BlockStage(later, 1).past
    for user in later.users("test").tolist():
        new = set(later.test[user].tolist()) - set(later.past[user].tolist())
        assert not new & set(past[user].tolist())
