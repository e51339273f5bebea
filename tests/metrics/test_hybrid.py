"""The reference that adds up texts, popularity and recency: against loops, and blind to what is tested."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from edgefr.data.datasets import load
from edgefr.data.splits.blocks import Blocks
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.hybrid import WEIGHTS, _asked, hybrid, popularity, recency
from edgefr.simulation.evaluation.ranking import evaluate
from tests.data.tables import dataset

TABLE = load("demo", options={"users": 60, "items": 120, "interactions": 20})
(SPLIT,) = LeaveOneOut(negatives=20).apply(TABLE, 0)
VECTORS = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
TEXT = references.text_mean(VECTORS, SPLIT)


def test_it_is_the_best_of_its_family_on_validation_items() -> None:
    users = SPLIT.users("valid")
    items = np.asarray(SPLIT.valid_candidates)
    scale = TEXT(users, items).std(axis=1).mean()
    parts = popularity(SPLIT), recency(SPLIT, TABLE)
    assert TABLE.clock

    def ndcg(weights: tuple[float, float]) -> float:
        total = 0.0
        for user, row in zip(users, items, strict=True):
            scores = TEXT(np.array([user]), row[None])[0] / scale + sum(
                w * p[row] for w, p in zip(weights, parts, strict=True)
            )
            rank = 1 + int((scores[1:] >= scores[0]).sum())
            total += 1 / np.log2(1 + rank) if rank <= 10 else 0.0
        return total / len(users)

    best = max(ndcg(weights) for weights in product(WEIGHTS, WEIGHTS))
    score = hybrid([TEXT], SPLIT, TABLE)
    assert evaluate(score, SPLIT, "valid", "sampled").metrics([10])["NDCG@10"] == pytest.approx(best)
    assert best >= evaluate(TEXT, SPLIT, "valid", "sampled").metrics([10])["NDCG@10"]


def test_what_is_tested_decides_nothing() -> None:
    users = np.arange(60)
    moved = np.where(SPLIT.test >= 0, (SPLIT.test + 5) % 120, -1).astype(np.int32)
    other = replace(SPLIT, test=moved, test_candidates=np.zeros_like(np.asarray(SPLIT.test_candidates)))
    held = np.isin(TABLE.user * 120 + TABLE.item, np.flatnonzero(SPLIT.test >= 0) * 120 + SPLIT.test[SPLIT.test >= 0])
    later = replace(TABLE, time=TABLE.time + held * 10**6)
    assert held.any()
    found = hybrid([TEXT], other, later)(users, None)
    np.testing.assert_array_equal(found, hybrid([TEXT], SPLIT, TABLE)(users, None))


def test_scores_of_chosen_items_are_those_of_the_pool() -> None:
    table = load("demo", options={"users": 60, "items": 120})
    target = CrossDomain(source="books", target="films", negatives=20).apply(table, 0)[1]
    score, users = hybrid([references.text_mean(VECTORS, target)], target, table), target.users("test")
    columns = np.searchsorted(target.pool, target.test_candidates)
    whole = np.take_along_axis(score(users, None), columns, axis=1)
    np.testing.assert_allclose(score(users, np.asarray(target.test_candidates)), whole, atol=1e-6)


def test_popularity_and_recency_are_of_training_items_alone() -> None:
    """Users 0 to 3 have items 0, 1, 2, then 3 to validate and 4 to test; user u's times start at 10 u."""
    rows = [(u, i, 10 * u + t) for u in range(4) for t, i in enumerate([0, 1 + (u == 3), 3, 4])]
    table = replace(dataset(rows, users=4, items=6), clock=True)
    (split,) = LeaveOneOut(negatives=1).apply(table, 0)
    assert split.train[3].tolist() == [0, 2]
    counts = np.log1p([4, 3, 1, 0, 0, 0])
    np.testing.assert_allclose(popularity(split), (counts - counts.mean()) / counts.std())
    ranks = np.array([2, 1, 3, 0, 0, 0])  # newest: 30, 21, 31, and never
    np.testing.assert_allclose(recency(split, table), (ranks - ranks.mean()) / ranks.std())


def test_without_a_clock_there_is_no_recency() -> None:
    plain, users = replace(TABLE, clock=False), SPLIT.users("test")
    shuffled = replace(plain, time=np.random.default_rng(0).permutation(plain.time))
    np.testing.assert_array_equal(
        hybrid([TEXT], SPLIT, plain)(users, None), hybrid([TEXT], SPLIT, shuffled)(users, None)
    )


def test_texts_that_say_nothing_leave_popularity() -> None:
    nothing = references.text_mean(np.zeros((120, 4), np.float32), SPLIT)
    plain = replace(TABLE, clock=False)
    found = evaluate(hybrid([nothing], SPLIT, plain), SPLIT, "test", "full").metrics([10])
    assert found == evaluate(references.popularity(SPLIT), SPLIT, "test", "full").metrics([10])


def test_recency_is_the_newest_time_whatever_the_order_of_rows() -> None:
    """Item 0's last row is its oldest: by that it would be older than item 1."""
    rows = [(0, 0, 50), (0, 2, 60), (0, 3, 70), (1, 1, 30), (1, 2, 80), (1, 3, 90), (2, 0, 10), (2, 3, 91), (2, 2, 92)]
    table = replace(dataset(rows, users=3, items=4), clock=True)
    (split,) = LeaveOneOut(negatives=1).apply(table, 0)
    assert [split.train[u].tolist() for u in range(3)] == [[0], [1], [0]]
    for order in (np.arange(len(rows)), np.arange(len(rows))[::-1]):
        moved = replace(table, user=table.user[order], item=table.item[order], time=table.time[order])
        ranks = np.array([2, 1, 0, 0])
        np.testing.assert_allclose(recency(split, moved), (ranks - ranks.mean()) / ranks.std())


def test_of_several_readers_the_better_on_validation_is_taken_and_of_equals_the_first() -> None:
    nothing, users = references.text_mean(np.zeros((120, 4), np.float32), SPLIT), SPLIT.users("test")
    held = np.zeros((len(SPLIT.valid), 120))
    held[np.arange(len(SPLIT.valid)), SPLIT.valid] = 1.0

    def knows(users, items):
        return held[users] if items is None else np.take_along_axis(held[users], items, axis=1)

    for texts in ([nothing, knows], [knows, nothing]):
        np.testing.assert_array_equal(
            hybrid(texts, SPLIT, TABLE)(users, None), hybrid([knows], SPLIT, TABLE)(users, None)
        )
    again = references.text_mean(VECTORS * 2, SPLIT)
    np.testing.assert_array_equal(hybrid([TEXT, again], SPLIT)(users, None), hybrid([TEXT], SPLIT)(users, None))


def test_a_block_ranks_a_validation_item_against_its_pool_without_what_its_user_trained_on() -> None:
    _, later = Blocks(min_interactions=1, increments=1).apply(TABLE, 0)
    users, items, hidden = _asked(later)
    assert len(users)
    assert hidden is not None
    for row, user in enumerate(users.tolist()):
        assert items[row].tolist() == [later.valid[user][0], *later.pool.tolist()]
        out = {later.valid[user][0], *later.train[user].tolist()}
        assert set(later.pool[hidden[row]].tolist()) == out
    moved = replace(later, test=later.valid)
    text = [references.text_mean(VECTORS, later)]
    np.testing.assert_array_equal(hybrid(text, moved)(users, None), hybrid(text, later)(users, None))
