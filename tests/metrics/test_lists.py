"""Held-out lists in full ranking against a plain loop, a full sort, and figures worked out by hand."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.ragged import Ragged
from edgefr.simulation.evaluation import lists, references
from edgefr.simulation.evaluation.lists import rank_lists
from privacy.errors import InputError

KS = [1, 3, 9, 20]
ITEMS = 14
POOL = np.array([0, 2, 3, 4, 7, 8, 10, 11, 12], np.int32)  # 9 of the items: one of the cut-offs is all of them
levels = st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.0, math.inf, -math.inf, math.nan])
users_of = st.lists(
    st.tuples(
        st.lists(levels, min_size=ITEMS, max_size=ITEMS),
        st.sets(st.sampled_from(POOL.tolist())),
        st.lists(st.integers(0, ITEMS + 5), max_size=12),
    ),
    max_size=6,
)


def plain(scores: dict[int, float], targets: set[int], left_out: set[int], k: int) -> tuple[float, float, float]:
    """HR, NDCG, Recall from the whole list: by score, NaN last, targets behind their ties."""
    if not targets:
        return math.nan, math.nan, math.nan
    ranked = [i for i in scores if i in targets or i not in left_out]
    ranked.sort(key=lambda i: (math.isnan(scores[i]), 0.0 if math.isnan(scores[i]) else -scores[i], i in targets))
    hits = [place for place, item in enumerate(ranked[:k], 1) if item in targets]
    best = sum(1 / math.log2(1 + place) for place in range(1, min(k, len(targets)) + 1))
    return float(bool(hits)), sum(1 / math.log2(1 + place) for place in hits) / best, len(hits) / len(targets)


def table_scorer(table: np.ndarray, pool: np.ndarray):
    def score(users, items):
        assert items is None
        return table[users][:, pool]

    return score


@given(users_of, st.sampled_from([None, 1, 2]), st.sampled_from([1, 20, 1 << 17]), st.sampled_from("CF"))
@settings(max_examples=200, deadline=None)
def test_against_a_plain_loop(rows, chunk, in_cache, order):
    table = np.array([row[0] for row in rows], np.float32).reshape(len(rows), ITEMS)
    users = np.arange(len(rows))[::-1]
    targets = Ragged.from_lists([sorted(rows[u][1]) for u in users])
    leave_out = Ragged.from_lists([rows[u][2] for u in users])
    score = table_scorer(table, POOL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "_VALUES_IN_CACHE", in_cache)
        found = rank_lists(
            lambda u, i: np.asarray(score(u, i), order=order), POOL, users, targets, leave_out, KS, chunk
        )
    assert list(found) == [f"{name}@{k}" for k in KS for name in ("HR", "NDCG", "Recall")]
    for at, u in enumerate(users.tolist()):
        scores = {item: float(table[u, item]) for item in POOL.tolist()}
        for k in KS:
            expected = plain(scores, rows[u][1], set(rows[u][2]), k)
            got = [found[f"{name}@{k}"][at] for name in ("HR", "NDCG", "Recall")]
            assert got == pytest.approx(expected, nan_ok=True)


def sorted_ranks(scores: np.ndarray, targets: Ragged, leave_out: Ragged) -> np.ndarray:
    """The rank of every target by sorting every row: left-out items last, then by score, targets behind their ties."""
    last, wanted = np.zeros(scores.shape, bool), np.zeros(scores.shape, bool)
    wanted[targets.rows, targets.values] = True
    last[leave_out.rows, leave_out.values] = True
    order = np.lexsort((wanted, -scores, last & ~wanted), axis=1)
    ranks = np.empty(scores.shape, np.int64)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(1, scores.shape[1] + 1), scores.shape), axis=1)
    return ranks[targets.rows, targets.values]


@pytest.mark.parametrize("different", [2, 30, 3000, 10**9])
def test_against_a_full_sort_with_few_and_many_ties(different):
    rng = np.random.default_rng(different)
    users, items, ks = 300, 700, [1, 10, 50]
    scores = (rng.integers(0, different, (users, items)) / different).astype(np.float32)
    targets = Ragged.from_lists([rng.choice(items, rng.integers(1, 20), replace=False) for _ in range(users)])
    leave_out = Ragged.from_lists([rng.choice(items, rng.integers(0, 400)) for _ in range(users)])
    ranks = sorted_ranks(scores, targets, leave_out)
    found = rank_lists(lambda u, i: scores[u], np.arange(items), np.arange(users), targets, leave_out, ks)
    for k in ks:
        hits = np.add.reduceat((ranks <= k).astype(float), targets.offsets[:-1])
        gains = np.add.reduceat(np.where(ranks <= k, 1 / np.log2(1 + ranks), 0), targets.offsets[:-1])
        best = np.array([sum(1 / math.log2(1 + p) for p in range(1, min(k, c) + 1)) for c in targets.counts.tolist()])
        assert found[f"HR@{k}"].tolist() == (hits > 0).astype(float).tolist()
        assert found[f"Recall@{k}"].tolist() == (hits / targets.counts).tolist()
        assert found[f"NDCG@{k}"] == pytest.approx(gains / best, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64, np.uint8, np.bool_])
def test_scores_of_any_number_type(dtype):
    scores = np.array([[1, 0, 1, 0], [0, 1, 1, 1]]).astype(dtype)
    targets = Ragged.from_lists([[0, 1], [0]])
    found = rank_lists(lambda u, i: scores[u], np.arange(4), np.arange(2), targets, Ragged.empty(2), [2, 4])
    assert found["Recall@2"].tolist() == [0.5, 0]
    assert found["Recall@4"].tolist() == [1, 1]


def test_scores_that_are_one_row_for_all_are_left_as_they_are():
    """Popularity answers with a view that repeats one row."""
    train = Ragged.from_lists([[1, 4], [4, 5], [4]])
    pool = np.array([1, 3, 4, 5], np.int32)
    targets = Ragged.from_lists([[5], [1], [3]])
    score = references.popularity_of(train, pool)
    for _ in range(2):
        found = rank_lists(score, pool, np.arange(3), targets, train, [1, 2])
        assert found["HR@1"].tolist() == [1, 1, 0]  # the third has 1 and 5 before 3
        assert found["HR@2"].tolist() == [1, 1, 0]


def test_a_chunk_at_a_time_and_never_the_whole_table():
    rng = np.random.default_rng(0)
    users, items = 300, 50_000
    asked: list[int] = []

    def score(some, _):
        asked.append(len(some))
        return rng.random((len(some), items), np.float32)

    targets = Ragged.from_lists([[u] for u in range(users)])
    tracemalloc.start()
    rank_lists(score, np.arange(items), np.arange(users), targets, Ragged.empty(users), [20])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(asked) == users
    assert max(asked) < users / 2
    assert peak < users * items * 4 * 0.75, "all scores at once are 60 MB"


def test_nobody_is_no_error():
    found = rank_lists(lambda u, i: np.zeros((0, 4)), np.arange(4), np.arange(0), Ragged.empty(0), Ragged.empty(0), [1])
    assert {name: values.shape for name, values in found.items()} == dict.fromkeys(("HR@1", "NDCG@1", "Recall@1"), (0,))


def ask(targets, leave_out=((),), users=(0,), width=3, ks=(1,)):
    return rank_lists(
        lambda u, i: np.zeros((len(u), width)),
        np.array([1, 2, 5]),
        np.array(users),
        Ragged.from_lists(targets),
        Ragged.from_lists(leave_out),
        ks,
    )


@pytest.mark.parametrize("item", [-1, 0, 3, 6, 7, 2**31 - 1])
def test_a_target_outside_the_pool_is_a_fault(item):
    with pytest.raises(ValueError, match=f"item {item} is held out but is not in the pool"):
        ask([[1, item]])


def test_faults_of_the_caller():
    with pytest.raises(ValueError, match="2 users, 1 rows of targets, 1 rows to leave out"):
        ask([[1]], users=(0, 1))
    with pytest.raises(ValueError, match="1 users, 1 rows of targets, 2 rows to leave out"):
        ask([[1]], leave_out=[[], []])
    with pytest.raises(ValueError, match="listed twice"):
        ask([[1, 2, 1]])
    with pytest.raises(ValueError, match=r"returned shape \(1, 4\)"):
        ask([[1]], width=4)
    with pytest.raises(InputError, match="whole cut-offs"):
        ask([[1]], ks=(0,))


def test_the_same_item_may_be_held_out_for_two_users():
    assert ask([[5], [5]], leave_out=[[], [1, 2]], users=(0, 1))["HR@1"].tolist() == [0, 1]


def test_a_constant_scorer_ranks_a_list_last_not_first():
    everyone = np.arange(3)
    targets, nothing = Ragged.from_lists([[0, 5], [2], []]), Ragged.empty(3)
    found = rank_lists(lambda u, i: np.zeros((len(u), 6)), np.arange(6), everyone, targets, nothing, [4, 5, 6])
    assert found["Recall@4"][:2].tolist() == [0, 0]
    assert found["Recall@5"][:2].tolist() == [0.5, 0]
    assert found["Recall@6"][:2].tolist() == [1, 1]
    assert np.isnan(found["Recall@6"][2])


def test_progress_is_told_per_chunk():
    told: list[tuple] = []
    rank_lists(
        lambda u, i: np.zeros((len(u), 4)),
        np.arange(4),
        np.arange(5),
        Ragged.from_lists([[0]] * 5),
        Ragged.empty(5),
        [1],
        chunk=2,
        progress=lambda *event: told.append(event),
    )
    assert told == [("evaluate", n, 5, "users") for n in (2, 4, 5)]
