"""Bounds from guesses against numbers known elsewhere, and against mechanisms whose epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy import keyed
from privacy.audits import (
    auc,
    clopper_pearson,
    epsilon_lower_bound,
    game_bound,
    leak,
    one_run_bound,
    tpr_at_fpr,
)


def test_clopper_pearson_is_that_of_tables() -> None:
    """No hit in n: the upper end is 1 - (tail)^(1/n); half in 100: the published .3983 and .6017."""
    assert clopper_pearson(0, 100)[1] == pytest.approx(1 - 0.025 ** (1 / 100), rel=1e-12)
    assert clopper_pearson(100, 100)[0] == pytest.approx(0.025 ** (1 / 100), rel=1e-12)
    low, high = clopper_pearson(50, 100)
    assert (round(float(low), 4), round(float(high), 4)) == (0.3983, 0.6017)


@pytest.mark.parametrize(("hits", "trials"), [(-1, 5), (6, 5), (0, 0)])
def test_counts_that_cannot_be_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        clopper_pearson(hits, trials)


def test_a_bound_is_the_log_of_the_ends() -> None:
    """TPR 1000/1000 and FPR 0/1000: both ends are .025^(1/1000) and its complement."""
    end = 0.025 ** (1 / 1000)
    assert epsilon_lower_bound(1000, 1000, 0, 1000) == pytest.approx(math.log(end / (1 - end)), rel=1e-9)
    assert epsilon_lower_bound(1000, 1000, 0, 1000, delta=0.5) == pytest.approx(math.log((end - 0.5) / (1 - end)))
    assert epsilon_lower_bound(10, 1000, 10, 1000) == 0.0


def test_the_second_side_sees_what_the_first_cannot() -> None:
    """Everything is guessed to be world one but half of world zero: only TNR over FNR shows it."""
    assert epsilon_lower_bound(1000, 1000, 500, 1000) < 0.8
    end = 0.0125 ** (1 / 1000)
    low = clopper_pearson(500, 1000, 0.975)[0]
    assert epsilon_lower_bound(1000, 1000, 500, 1000, sides=2) == pytest.approx(math.log(float(low) / (1 - end)))


@given(st.integers(1, 400), st.data())
@settings(max_examples=60, deadline=None)
def test_a_bound_never_exceeds_what_the_rates_say(trials: int, data: st.DataObject) -> None:
    right, wrong = (data.draw(st.integers(0, trials)) for _ in range(2))
    found = epsilon_lower_bound(right, trials, wrong, trials)
    assert found >= 0
    if wrong and right:
        assert found <= max(0.0, math.log(right / wrong))
    assert epsilon_lower_bound(right, trials, wrong, trials, sides=2) >= 0


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "expected"),
    [(100, 100, 100, 3.493), (1000, 100, 100, 3.493), (100, 100, 50, 0.0), (100, 0, 0, 0.0)],
)
def test_one_run_bounds_of_the_handbook(canaries: int, guesses: int, correct: int, expected: float) -> None:
    """All r guesses right, delta = 0: -ln(.05^(-1/r) - 1)."""
    assert one_run_bound(canaries, guesses, correct) == pytest.approx(expected, abs=5e-4)


def test_one_run_bound_at_a_delta_is_smaller_and_by_hand() -> None:
    """Two canaries, both right: p^2 + 2 m delta max(P[W = 1], P[W <= 1] / 2) = .05 at the bound."""
    delta = 1e-3
    found = one_run_bound(2, 2, 2, delta, confidence=0.2)
    rate = 1 / (1 + math.exp(-found))
    one, zero = 2 * rate * (1 - rate), (1 - rate) ** 2
    assert rate**2 + 4 * delta * max(one, (one + zero) / 2) == pytest.approx(0.8, abs=1e-5)
    assert found < one_run_bound(2, 2, 2, 0.0, confidence=0.2)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.lists(st.integers(-3, 3), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_auc_is_the_share_of_pairs(ones: list[int], zeros: list[int]) -> None:
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in ones for b in zeros]
    assert auc(ones, zeros) == pytest.approx(sum(pairs) / len(pairs))
    assert auc(zeros, ones) == pytest.approx(1 - sum(pairs) / len(pairs))


def test_tpr_keeps_its_false_positives() -> None:
    zeros = np.arange(200.0)
    assert tpr_at_fpr([197.5, 198.5, 500.0], zeros) == pytest.approx(2 / 3 + 1 / 3)  # 2 of 200 may be above
    assert tpr_at_fpr([196.5, 198.5], zeros) == 0.5
    assert tpr_at_fpr([1.0, 1.0], np.ones(500)) == 0.0, "ties are no true positives"
    assert math.isnan(tpr_at_fpr([], zeros))
    assert math.isnan(auc([1.0], []))


def test_a_leak_stands_out_and_chance_does_not() -> None:
    """Scores of chance lie below their null's 95 % quantile in about 95 of 100 cases; scores that know do not."""
    above = 0
    for case in range(40):
        groups = [
            (keyed.normal(keyed.key(case, "scores", user), np.arange(30)), np.arange(30) < 8) for user in range(5)
        ]
        found = leak(groups, keyed.generator(case, "deals"), deals=60)
        above += found.auc > found.auc_null
        assert found.best_auc > 0.5
    assert above <= 7
    member = np.arange(60) % 3 == 0
    knows = [(member - 0.9 * keyed.uniform(keyed.key(1, "knows", u), np.arange(60)), member) for u in range(5)]
    found = leak(knows, keyed.generator(0, "deals"))
    assert (found.auc, found.tpr, found.best_auc) == (1.0, 1.0, 1.0)
    assert 0.5 < found.auc_null < 0.65
    assert 0 < found.tpr_null < 0.2


@pytest.mark.parametrize(("claimed", "expected"), [(1.0, 0.975), (4.0, 3.88), (8.0, 7.38)])
def test_bounds_of_laplace_are_those_of_the_handbook(claimed: float, expected: float) -> None:
    """Distance 2, b = 2 / epsilon, 4e5 draws in all: about the handbook's bounds, and never above what is true."""
    noise = keyed.generator(0, "laplace", int(claimed)).laplace(0.0, 2.0 / claimed, 400_000)
    found, counts = game_bound(1.0 + noise[:200_000], noise[200_000:] - 1.0)
    assert expected - 0.25 < found <= claimed
    assert counts["positives"] == counts["negatives"] == 100_000


def test_bounds_err_no_more_often_than_they_say() -> None:
    """100 games of a mechanism of epsilon exactly 1: at most 5 % of the bounds may be above 1 (12 would be a fault)."""
    above = 0
    for game in range(100):
        noise = keyed.generator(game, "many games").laplace(0.0, 2.0, 4000)
        above += game_bound(1.0 + noise[:2000], noise[2000:] - 1.0)[0] > 1.0
    assert above <= 11


def test_one_run_bound_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="cannot be right"):
        one_run_bound(10, 5, 6)


def test_the_wrong_sign_shows_only_beside_somebody_who_knows_it() -> None:
    member = np.arange(60) % 3 == 0
    found = leak([(-1.0 * member, member)] * 4, keyed.generator(0, "deals"), deals=20)
    assert (found.auc, found.best_auc) == (0.0, 1.0)


def test_groups_of_one_kind_say_nothing() -> None:
    assert all(math.isnan(v) for v in leak([(np.zeros(3), np.ones(3, bool))], keyed.generator(0, "x"), deals=2))
