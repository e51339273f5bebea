"""Metrics of recommended lists by hand, and those of ranks beside ranx."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge.ragged import Ragged
from edgefr.data.readers.demo import DemoOptions, generate
from edgefr.experiment.experiment import load_experiment
from edgefr.metrics.cutoffs import METRICS, at_cutoffs, metrics_at
from edgefr.simulation.evaluation.beyond import About, Listed, top_lists
from edgefr.simulation.evaluation.lists import rank_lists
from edgefr.simulation.evaluation.references import popularity_of
from privacy.errors import InputError
from tests.metrics.ranx_alone import evaluated

POOL = np.array([0, 2, 3, 5])
TRAIN = Ragged.from_lists([[0, 2], [0], [0, 2, 3], [0]])
TASK: Any = SimpleNamespace(train=TRAIN, pool=POOL)
ABOUT = About(
    ["red wool", "", "red wool", "blue jar", "", "red jar"],
    [("a",), (), ("b",), ("a", "b"), (), ("a",)],
)


def listed(items: list[list[int]], users: list[int], **found: list[float]) -> Listed:
    values = {name: np.array(own) for name, own in found.items()}
    return Listed(len(items[0]), np.array(users), np.array(items), TASK, ABOUT, values)


def value(name: str, of: Listed) -> Any:
    return np.asarray(METRICS[name].of(of))


def test_what_is_always_measured_stays_what_it_was():
    assert metrics_at([5]) == ["HR@5", "NDCG@5", "Recall@5"]
    assert metrics_at([5], ["MAP", "Novelty"]) == ["HR@5", "NDCG@5", "Recall@5", "MAP@5"], "in the table's order"
    assert list(at_cutoffs(Ragged.from_lists([[1]], np.int64), [5])) == metrics_at([5])


def test_of_ranks_by_hand():
    ranks = Ragged.from_lists([[4, 2, 9], [11], []], np.int64)
    found = at_cutoffs(ranks, [5], ["MRR", "MAP", "Precision"])
    assert found["MRR@5"].tolist()[:2] == [0.5, 0.0]
    assert found["MAP@5"].tolist()[:2] == [pytest.approx((1 / 2 + 2 / 4) / 3), 0.0]
    assert found["Precision@5"].tolist()[:2] == [2 / 5, 0.0]
    assert all(np.isnan(values[2]) for values in found.values()), "nothing is held out"


def test_against_ranx():
    """All metrics of ranks are those of a well-kept library, many targets per user, no ties."""
    rng = np.random.default_rng(4)
    users, items = 40, 60
    scores = rng.permuted(np.tile(np.arange(items, dtype=float), (users, 1)), axis=1)
    targets = [sorted(rng.choice(items, rng.integers(1, 15), replace=False).tolist()) for _ in range(users)]
    truth = {f"u{u:03}": {f"i{i}": 1 for i in targets[u]} for u in range(users)}
    run = {f"u{u:03}": {f"i{i}": float(scores[u, i]) for i in range(items)} for u in range(users)}
    pairs = {"hit_rate": "HR", "ndcg": "NDCG", "recall": "Recall", "mrr": "MRR", "map": "MAP", "precision": "Precision"}
    expected = evaluated(truth, run, [f"{name}@{k}" for name in pairs for k in (5, 10, 20)])
    everyone, held, none = np.arange(len(scores)), Ragged.from_lists(targets), Ragged.empty(len(scores))
    score = lambda u, _: scores[u]  # noqa: E731
    found = rank_lists(
        score, np.arange(scores.shape[1]), everyone, held, none, [5, 10, 20], named=list(pairs.values())[3:]
    )
    for theirs, ours in pairs.items():
        for k in (5, 10, 20):
            assert found[f"{ours}@{k}"].mean() == pytest.approx(expected[f"{theirs}@{k}"], abs=1e-9)


def test_lists_are_the_best_that_may_be_shown():
    scores = np.array([[0.1, 0.9, np.nan, 0.5], [0.7, 0.7, 0.7, 0.7], [0.3, 0.2, 0.1, 0.0]])
    hidden = Ragged.from_lists([[2], [], [0, 2, 3, 5]])
    found = top_lists(lambda users, items: scores[users], POOL, np.arange(3), hidden, 3)
    assert found.tolist() == [[5, 0, -1], [0, 2, 3], [-1, -1, -1]]
    assert top_lists(lambda users, items: scores[users], POOL, np.array([1]), Ragged.empty(1), 9).shape == (1, 9)


def test_lists_are_those_of_a_sort():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (30, 40)).astype(float)
    hidden = Ragged.from_lists([rng.choice(40, 5, replace=False).tolist() for _ in range(30)])
    found = top_lists(lambda users, items: scores[users], np.arange(40), np.arange(30), hidden, 7)
    for user, row in enumerate(found):
        order = [item for item in np.argsort(-scores[user], kind="stable") if item not in hidden[user]]
        assert row.tolist() == order[:7]


def test_coverage_is_of_the_whole_pool():
    assert value("Coverage", listed([[2, 3], [3, 2]], [0, 1])) == 0.5
    assert value("Coverage", listed([[2, -1], [-1, -1]], [0, 1])) == 0.25


def test_novelty_is_in_bits():
    """All four users know item 0, two item 2, one item 3, nobody item 5, which counts as half a user."""
    found = value("Novelty", listed([[0, 2], [3, 5], [2, -1], [-1, -1]], [0, 1, 2, 3]))
    assert found[:3].tolist() == [0.5, 2.5, 1.0]
    assert np.isnan(found[3])


def test_diversity_is_the_mean_distance_of_two():
    found = value("Diversity", listed([[0, 2, -1], [0, 3, -1], [0, 2, 3], [0, -1, -1]], [0, 1, 2, 3]))
    assert found[:2] == pytest.approx([0.0, 1.0], abs=1e-6), "the same words; no word in common"
    assert found[2] == pytest.approx(2 / 3, abs=1e-6)
    assert np.isnan(found[3])
    assert value("Diversity", listed([[0, 5]], [0])) == pytest.approx([0.5], abs=1e-6), "one word of two"


def test_popularity_and_its_lift():
    one = listed([[0, 2], [2, 3]], [0, 2])
    assert value("Popularity", one).tolist() == [0.75, 0.375]
    # Profiles: of user 0 (1 + .5) / 2, of user 2 (1 + .5 + .25) / 3.
    assert value("PopularityLift", one) == pytest.approx((0.75 + 0.375) / (0.75 + 1.75 / 3) - 1)


def test_calibration_is_stecks():
    """User 0 trains on one item of a and one of b; a list of a alone is off by a known divergence."""
    found = value("Calibration", listed([[0, 2], [0, 5], [3, -1]], [0, 0, 0]))
    p, q = np.array([0.5, 0.5]), 0.99 * np.array([1.0, 0.0]) + 0.01 * np.array([0.5, 0.5])
    assert found == pytest.approx([0.0, float((p * np.log(p / q)).sum()), 0.0], abs=1e-12)
    assert np.isnan(value("Calibration", listed([[-1, -1]], [0])))


def test_the_fairness_gap_is_between_quarters_by_activity():
    assert value("FairnessGap", listed([[0, 2]] * 4, [0, 1, 2, 3], NDCG=[0.4, 0.1, 0.9, 0.3])) == pytest.approx(0.8)


def test_popular_items_are_neither_novel_nor_many():
    data = generate(DemoOptions(users=80, items=160, interactions=20), 0, None)
    train = Ragged.from_sorted(data.user, data.item, len(data.users))
    pool, users = np.arange(len(data.catalogue)), np.arange(80)
    task: Any = SimpleNamespace(train=train, pool=pool)
    rng = np.random.default_rng(1)
    scorers = {
        "popular": popularity_of(train, pool),
        "random": lambda users, items: rng.random((len(users), len(pool))),
    }
    lists = {name: top_lists(score, pool, users, Ragged.empty(80), 10) for name, score in scorers.items()}
    found = {name: Listed(10, users, own, task, About.of(data.catalogue)) for name, own in lists.items()}
    for name, more in {
        "Coverage": "random",
        "Novelty": "random",
        "Popularity": "popular",
        "PopularityLift": "popular",
    }.items():
        less = "random" if more == "popular" else "popular"
        assert value(name, found[more]).mean() > value(name, found[less]).mean(), name


def test_what_a_metric_cannot_read_is_refused():
    About().check(["Novelty", "MRR"])
    with pytest.raises(
        InputError, match="Diversity reads the texts of items, and this data set has none; choose others"
    ):
        About().check(["Diversity"])
    with pytest.raises(InputError, match="Calibration reads the categories"):
        About(texts=["a"]).check(["Calibration"])
    with pytest.raises(InputError, match="Novelty is measured on lists of full ranking"):
        load_experiment(overrides=["evaluation.metrics=[Novelty]", "evaluation.full_ranking_users=0"])
    with pytest.raises(InputError, match="unknown metric 'Noveltty'; did you mean 'Novelty'"):
        load_experiment(overrides=["evaluation.metrics=[Noveltty]"])
    with pytest.raises(InputError, match=r"unknown metric of evaluation.judged_by 'MRR'"):
        load_experiment(overrides=["evaluation.judged_by=MRR"])
    asked = ["evaluation.judged_by=MRR", "evaluation.keep=best", "evaluation.metrics=[MRR]"]
    assert load_experiment(overrides=["method=fedmf", *asked]).evaluation.judge == "MRR@10"
