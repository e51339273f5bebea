"""Correlated noise against its matrices: what is released, how far one client moves it, how little of it is left."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from privacy.correlated_noise import MOST_VALUES, CorrelatedNoise, coefficients, reach
from privacy.errors import InputError
from privacy.plan import plan
from privacy.settings import PrivacySettings


def matrix(band: int, rounds: int) -> np.ndarray:
    """C, written out: 1 on the diagonal, c_j on the j-th diagonal below, for j < band."""
    return sum(np.diag(np.full(rounds - j, c), -j) for j, c in enumerate(coefficients(band)) if j < rounds)


def loss(c: np.ndarray, rounds: int) -> float:
    """Mean square error of all prefix sums at equal privacy."""
    whole = sum(np.diag(np.full(rounds - j, x), -j) for j, x in enumerate(c) if j < rounds)
    prefix = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(whole)
    return float((prefix**2).sum() * (c**2).sum())


def settings(**changes: object) -> PrivacySettings:
    return PrivacySettings(mechanism="gaussian", clip=1.0, **{"apart": 5, "correlated": True, "sigma": 4.0} | changes)


@pytest.mark.parametrize("band", [1, 2, 5, 9])
def test_what_is_released_is_c_inverse_of_c_x_plus_z(band: int) -> None:
    draws, rounds = np.random.default_rng(band), 23
    sums, fresh = draws.normal(size=(2, rounds, 3))
    c, noise = matrix(band, rounds), CorrelatedNoise(band, None)
    told = np.array([x + noise.of_round("w", t, z) for t, (x, z) in enumerate(zip(sums, fresh, strict=True))])
    np.testing.assert_allclose(told, np.linalg.solve(c, c @ sums + fresh), atol=1e-12)


@pytest.mark.parametrize("band", [2, 5, 16])
def test_clients_that_come_once_in_a_band_move_c_x_by_the_root_of_their_releases(band: int) -> None:
    draws, rounds = np.random.default_rng(0), 5 * band
    exact = float(np.linalg.norm(coefficients(band)))
    assert exact < reach(band) < 1.02 * exact
    for _ in range(200):
        gaps = band + draws.integers(0, 3, rounds)
        when = [t for t in np.cumsum(gaps) - gaps[0] + draws.integers(0, band) if t < rounds]
        own = np.zeros((rounds, 4))
        own[when] = draws.normal(size=(len(when), 4))
        own[when] /= np.linalg.norm(own[when], axis=1, keepdims=True)
        moved = float(np.linalg.norm(matrix(band, rounds) @ own))
        assert moved <= math.sqrt(len(when)) * exact + 1e-12
        assert moved < math.sqrt(len(when)) * reach(band)


@pytest.mark.parametrize("values", [1, 4000])
def test_rounding_to_the_grid_is_in_the_reach(values: int) -> None:
    """Of what is known before a round, another client's data moves its centre by no more than the reach says."""
    band, step, draws = 5, 2.0**-18, np.random.default_rng(values)
    c = coefficients(band)
    worst = 0.0
    for _ in range(50):
        told = np.rint(draws.normal(size=(2 * band, values)) * 8 / step) * step
        one, other = np.zeros((2, 2 * band, values))
        change = draws.normal(size=values)
        other[3] = np.trunc(change / np.linalg.norm(change) / step) * step
        centres = []
        for sums in (one, other):
            kept = told - sums  # the noise that these sums would have had
            back = [sum((c[j] * kept[t - j] for j in range(1, min(band, t + 1))), 0 * kept[0]) for t in range(2 * band)]
            centres.append(sums - np.rint(np.array(back) / step) * step)
        worst = max(worst, float(np.linalg.norm(centres[1] - centres[0])))
    assert float(np.linalg.norm(c)) * 0.99 < worst < reach(band)


def test_noise_on_a_grid_stays_on_it() -> None:
    step, draws = 2.0**-10, np.random.default_rng(0)
    noise = CorrelatedNoise(3, step)
    for number in range(1, 8):
        found = noise.of_round("w", number, np.rint(draws.normal(size=50) / step) * step) / step
        assert np.array_equal(found, np.rint(found))


def test_a_round_that_was_not_released_takes_nothing_back() -> None:
    noise = CorrelatedNoise(3, None)
    first = noise.of_round("w", 1, np.array([2.0]))
    assert noise.of_round("w", 3, np.array([0.0])) == -coefficients(3)[2] * first
    assert noise.of_round("v", 3, np.array([1.0])) == 1.0


def test_its_state_goes_on_to_the_same_noise() -> None:
    draws = np.random.default_rng(0).normal(size=(6, 4))
    whole, begun = CorrelatedNoise(4, None), CorrelatedNoise(4, None)
    expected = [whole.of_round("w", t, z) for t, z in enumerate(draws)]
    for t in range(3):
        begun.of_round("w", t, draws[t])
    later = CorrelatedNoise(4, None)
    later.restore(begun.state())
    np.testing.assert_array_equal([later.of_round("w", t, draws[t]) for t in range(3, 6)], expected[3:])


@pytest.mark.parametrize(("band", "rounds", "left"), [(2, 93, 0.74), (5, 93, 0.52), (10, 93, 0.43), (20, 200, 0.37)])
def test_a_model_has_less_of_it_and_hardly_more_than_of_the_best(band: int, rounds: int, left: float) -> None:
    own = loss(np.array(coefficients(band)), rounds)
    assert math.sqrt(own / loss(np.ones(1), rounds)) < left
    roots = np.array([math.comb(2 * j, j) / 4**j for j in range(band)])  # Kalinin & Lampert 2024
    assert own < loss(roots, rounds)
    if band <= 5:
        best = minimize(lambda x: loss(np.r_[1.0, x], rounds), np.array(coefficients(band))[1:], method="BFGS").fun
        assert own < 1.01 * best


def test_an_epsilon_is_that_of_as_many_gaussian_releases_as_a_client_makes() -> None:
    often = plan(PrivacySettings(mechanism="gaussian", clip=1.0, sigma=4.0), 20, 10, 100)
    seldom = plan(settings(correlated=False), 100, 10, 100)
    assert seldom.promised == often.promised
    told = 2 / 20**2  # what the clip did, in values of a round of its own
    sigma = 4.0 * math.sqrt((reach(5) ** 2 + told) / (1.0 + told))
    correlated = plan(settings(sigma=sigma), 100, 10, 100)
    assert correlated.promised.epsilon == pytest.approx(often.promised.epsilon, rel=1e-5)
    assert correlated.event.multiplier == pytest.approx(often.event.multiplier, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"apart": 1}, "set apart"),
        ({"apart": 65}, "set apart"),
        ({"trust": "local"}, "set trust to central"),
        ({"project": 100}, "drop project"),
    ],
)
def test_what_cannot_be_correlated_says_so(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        settings(**changes)


def test_a_plan_refuses_what_its_reach_does_not_cover() -> None:
    with pytest.raises(InputError, match="up to 4,000,000 values"):
        plan(settings(), 10, 10, 100, values=MOST_VALUES + 1)
    with pytest.raises(InputError, match=r"20 can be in a cohort, not 21: lower privacy\.apart"):
        plan(settings(), 10, 21, 100)
