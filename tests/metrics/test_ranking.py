import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.data.splits.leave_one_out import LeaveOneOut
from edgefr.data.splits.split import Split
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ranking import Ranking, evaluate
from privacy.errors import InputError
from tests.data.tables import dataset

KS = [1, 3, 10]
levels = st.sampled_from([0.0, 0.5, 1.0, -1.0, math.inf, -math.inf, math.nan])


def literal_rank(target, others):
    """1 + others not below the target; a NaN target is below everything, NaN others below the rest."""
    if math.isnan(target):
        return 1 + len(others)
    return 1 + sum(1 for other in others if not math.isnan(other) and other >= target)


def literal_metrics(ranks, k):
    """HR, NDCG, Recall of one user from the ranks of its targets."""
    hits = [r for r in ranks if r <= k]
    best = sum(1 / math.log2(1 + p) for p in range(1, min(k, len(ranks)) + 1))
    return float(bool(hits)), sum(1 / math.log2(1 + r) for r in hits) / best, len(hits) / len(ranks)


@pytest.fixture(scope="module")
def split() -> Split:
    rng = np.random.default_rng(0)
    rows = [(u, int(i), t) for u in range(30) for t, i in enumerate(rng.choice(40, 2 + u % 9, replace=False))]
    return LeaveOneOut(negatives=12).apply(dataset(rows, users=31, items=40), 0)[0]


def scorer_of(table, split):
    def score(users, items):
        return table[users[:, None], split.pool[None, :] if items is None else items]

    return score


@given(st.data())
@settings(max_examples=40)
def test_evaluate_against_a_loop_over_users(split, data):
    draws = data.draw(st.lists(levels, min_size=31 * 4, max_size=31 * 4))
    table = np.resize(np.array(draws), (31, 40))
    which = data.draw(st.sampled_from(["valid", "test"]))
    chunk = data.draw(st.sampled_from([None, 1, 7]))
    score = scorer_of(table, split)
    sampled = evaluate(score, split, which, "sampled", chunk=chunk)
    full = evaluate(score, split, which, "full", chunk=chunk)
    candidates = split.valid_candidates if which == "valid" else split.test_candidates
    assert sampled.users.tolist() == full.users.tolist() == split.users(which).tolist()
    for n, u in enumerate(sampled.users.tolist()):
        target = (split.valid if which == "valid" else split.test)[u]
        assert candidates[n, 0] == target
        assert sampled.ranks[n] == literal_rank(table[u, target], table[u, candidates[n, 1:]].tolist())
        own = set(split.train[u].tolist()) | ({int(split.valid[u])} if which == "test" else set())
        others = [table[u, i] for i in split.pool.tolist() if i != target and i not in own]
        assert full.ranks[n] == literal_rank(table[u, target], others)


class Tiles:
    """A scorer of parts of the pool that knows how it was asked."""

    def __init__(self, whole):
        self.whole, self.asked = whole, set()

    def __call__(self, users, items):
        raise AssertionError("it can be asked for parts")

    def in_tiles(self, users):
        def tile(start, stop):
            self.asked.add((start, stop))
            return self.whole(users, None)[:, start:stop]

        return tile


@given(st.data())
@settings(max_examples=40)
def test_ranks_taken_tile_by_tile_are_those_of_the_whole_pool(split, data):
    draws = data.draw(st.lists(levels, min_size=31 * 4, max_size=31 * 4))
    score = scorer_of(np.resize(np.array(draws, np.float32), (31, 40)), split)
    which, size = data.draw(st.sampled_from(["valid", "test"])), data.draw(st.sampled_from([1, 7, 20, 39]))
    users = data.draw(st.permutations(split.users(which).tolist()))
    tiles = Tiles(score)
    with pytest.MonkeyPatch.context() as patch:
        whole = evaluate(score, split, which, "full", users)
        patch.setattr("edgefr.simulation.evaluation.ranking.TILE", size)
        parts = evaluate(tiles, split, which, "full", users)
    assert (parts.users.tolist(), parts.ranks.tolist()) == (whole.users.tolist(), whole.ranks.tolist())
    assert {start for start, _ in tiles.asked} == set(range(0, 40, size))


def test_users_can_be_chosen_and_progress_is_told(split):
    table = np.random.default_rng(1).normal(size=(31, 40))
    whole = evaluate(scorer_of(table, split), split, "test", "sampled")
    told: list[tuple] = []
    some = evaluate(
        scorer_of(table, split),
        split,
        "test",
        "sampled",
        users=[20, 4, 10],
        chunk=2,
        progress=lambda *a: told.append(a),
    )
    assert some.users.tolist() == [20, 4, 10]
    assert some.ranks.tolist() == [whole.ranks[whole.users.tolist().index(u)] for u in (20, 4, 10)]
    assert told == [("evaluate", 2, 3, "users"), ("evaluate", 3, 3, "users")]


def test_who_cannot_be_evaluated_is_refused(split):
    nothing = scorer_of(np.zeros((31, 40)), split)
    with pytest.raises(InputError, match="user number 30 has no test item"):
        evaluate(nothing, split, "test", "full", users=[3, 30])
    with pytest.raises(InputError, match="there is no user to evaluate"):
        evaluate(nothing, split, "test", "full", users=[])


def test_a_scorer_of_the_wrong_shape_is_a_fault(split):
    with pytest.raises(ValueError, match=r"returned shape \(\d+, 5\)"):
        evaluate(lambda users, items: np.zeros((len(users), 5)), split, "test", "full")


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_metrics_of_one_target_against_the_definition(ranks):
    ranking = Ranking(np.arange(len(ranks)), np.array(ranks))
    means, users = ranking.metrics(KS), ranking.per_user(KS)
    for k in KS:
        for at, name in enumerate((f"HR@{k}", f"NDCG@{k}", f"Recall@{k}")):
            expected = [literal_metrics([r], k)[at] for r in ranks]
            assert users[name] == pytest.approx(expected)
            assert means[name] == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("ks", [[], [0], [10, -1], [2.5]])
def test_cut_offs_are_whole_and_positive(ks):
    with pytest.raises(InputError, match="whole cut-offs k of at least 1"):
        Ranking(np.array([0]), np.array([1])).metrics(ks)


@pytest.mark.parametrize("ranking", ["sampled", "full"])
def test_what_is_unknown_is_tied_and_metrics_are_means_over_all_ranks(split, ranking):
    found = evaluate(references.unknown(0, split), split, "test", ranking)
    each = found.per_user(KS, ["MRR"])
    for at, user in enumerate(found.users.tolist()):
        own = len(split.train[user]) + int(split.valid[user] >= 0)
        last = 13 if ranking == "sampled" else 40 - own
        for k in KS:
            by_hand = [literal_metrics([rank], k) for rank in range(1, last + 1)]
            expected = [sum(values) / last for values in zip(*by_hand, strict=True)]
            assert [each[f"{name}@{k}"][at] for name in ("HR", "NDCG", "Recall")] == pytest.approx(expected)
            assert each[f"MRR@{k}"][at] == pytest.approx(sum(1 / r for r in range(1, min(k, last) + 1)) / last)


def test_lists_of_what_is_unknown_are_those_of_chance(split):
    users = np.arange(4)
    unknown, chance = references.unknown(5, split), references.random(5, split)
    assert np.array_equal(unknown(users, None), chance(users, None))
