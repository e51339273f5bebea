"""Discrete Gaussian noise costs no more than is accounted for: against its exact privacy-loss distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privacy.accounting import composed, gaussian_epsilon, log_normal
from privacy.guarantee import Event
from privacy.mechanisms.gaussian import SPARE

DELTA = 1e-5


def exact_delta(sigma: float, shifts: tuple[int, ...], epsilon: float) -> float:
    """Delta at `epsilon` of independent discrete Gaussians whose centres move by these shifts, summed over the grid."""
    x = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + max(shifts) + 1)
    kernel = np.exp(-(x.astype(np.longdouble) ** 2) / (2 * sigma**2))
    chance = kernel / kernel.sum()
    chances, losses = np.ones(1), np.zeros(1)
    for shift in shifts:
        loss = ((x - shift) ** 2 - x**2) / (2 * sigma**2)
        chances = np.outer(chances, chance).ravel()
        losses = np.add.outer(losses, loss.astype(np.float64)).ravel()
    return float((chances * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum())


@pytest.mark.parametrize("sigma", [10, 13, 25])
@pytest.mark.parametrize("shifts", [(1,), (4,), (25,), (3, 4), (7, 0), (2, 2)])
def test_the_epsilon_holds_and_is_nearly_the_best(sigma: int, shifts: tuple[int, ...]) -> None:
    steps = math.ceil(math.hypot(*shifts))
    found = composed([(Event("discrete-gaussian", multiplier=sigma / steps, steps=steps), 1)], DELTA)
    assert found.method == "GDP closed form"
    assert exact_delta(sigma, shifts, found.epsilon) <= DELTA
    if steps == math.hypot(*shifts):
        less = gaussian_epsilon(sigma / steps, 1, DELTA)
        assert exact_delta(sigma, shifts, 0.97 * less) > DELTA


def test_two_releases_cost_no_more_than_they_are_composed_to() -> None:
    found = composed([(Event("discrete-gaussian", multiplier=4.0, steps=3), 2)], DELTA)
    assert exact_delta(12, (3, 3), found.epsilon) <= DELTA


def test_random_rounding_makes_the_discrete_law_of_the_continuous_one() -> None:
    """Peikert 2010, Theorem 3.1, by numerical integration: probabilities agree to what floats can show."""
    sigma, z = 10.0, np.arange(-40, 41)
    wide = math.sqrt(sigma**2 - SPARE**2)
    y = np.linspace(-120, 120, 48_001)
    density = np.exp(-(y**2) / (2 * wide**2)) / (wide * math.sqrt(2 * math.pi))
    weights = np.exp(-((np.arange(-200, 201)[:, None] - y) ** 2) / (2 * SPARE**2))
    rounded = (weights / weights.sum(axis=0) * density).sum(axis=1) * (y[1] - y[0])
    law = np.exp(-(np.arange(-200, 201) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(rounded[z + 200], (law / law.sum())[z + 200], rtol=1e-12)


@pytest.mark.parametrize("event", itertools.product([1.0, 4.0], [0, 1, 2]))
def test_too_few_steps_are_accounted_for_by_zcdp(event: tuple[float, int]) -> None:
    multiplier, steps = event
    found = composed([(Event("discrete-gaussian", multiplier=multiplier, steps=steps), 10)], DELTA)
    assert found == composed([(Event("discrete-gaussian", multiplier=multiplier), 10)], DELTA)
    assert found.method == "zCDP->RDP"


def test_the_logarithm_of_the_normal_distribution_function() -> None:
    from scipy.special import log_ndtr

    x = np.concatenate([np.linspace(-300, 4, 20_001), [-8.0, -7.999999, 0.0]])
    np.testing.assert_allclose([log_normal(float(value)) for value in x], log_ndtr(x), rtol=1e-11, atol=1e-15)
