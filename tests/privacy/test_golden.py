"""Golden values that no other test has: published noise had it been clipped, and Poisson sampling at more rates."""

import math

import pytest

from privacy.accounting import composed, gaussian_epsilon, pld_epsilon, rdp_epsilon, without_libraries
from privacy.guarantee import Event

dp = pytest.importorskip("dp_accounting")
DELTA = 1e-5
ROUNDS = (1, 10, 40, 100)


@pytest.mark.parametrize(
    ("l1_norm", "scale", "golden"),
    [
        (192, 0.1, (3840, 38400, 153600, 384000)),
        (192, 0.5, (768, 7680, 30720, 76800)),
        (math.sqrt(50_000), 0.5, (894, 8944, 35780, 89440)),
        (math.sqrt(50), 0.5, (28.3, 283, 1131, 2828)),
        (159.2, 0.5, (637, 6368, 25470, 63680)),
        (159.2, 0.1, (3184, 31840, 127400, 318400)),
        (2136, 0.5, (8544, 85440, 341800, 854400)),
    ],
)
def test_pure_composition_of_laplace_noise_under_an_l1_clip(l1_norm, scale, golden):
    """Local, replace-one: 2 C / b a round."""
    found = [composed([(Event("laplace", "l1", scale / (2 * l1_norm)), rounds)], DELTA) for rounds in ROUNDS]
    pure = [rounds * 2 * l1_norm / scale for rounds in ROUNDS]
    assert pure == pytest.approx(golden, rel=1.1e-3)
    # at such norms the scalar mechanism's curve is all but a line: no bound is much below the pure one
    assert all(0.97 * p <= guarantee.epsilon <= p for p, guarantee in zip(pure, found, strict=True))


@pytest.mark.parametrize(
    ("bound", "scale", "golden"),
    [
        (1.0, 0.1, (284, 2269, 8538, 20850)),
        (1.0, 0.5, (24.4, 133, 427, 970)),
        (2.71, 0.5, (104, 733, 2642, 6337)),
    ],
)
def test_what_many_small_coordinates_come_near_to_is_a_gaussian_and_below_the_bound(bound, scale, golden):
    """Laplace noise on many equal coordinates is a Gaussian of mu = 2 C / b: no valid bound may be lower."""
    found = [gaussian_epsilon(scale / (2 * bound), rounds, DELTA) for rounds in ROUNDS]
    assert found == pytest.approx(golden, rel=3e-3)
    valid = [composed([(Event("laplace", "l2", scale / (2 * bound)), rounds)], DELTA).epsilon for rounds in ROUNDS]
    assert all(low < high < 1.1 * low for low, high in zip(found, valid, strict=True))


@pytest.mark.parametrize(
    ("q", "z", "rounds", "rdp", "pld"),
    [
        (0.1, 1, 100, 7.904, 7.047),
        (0.1, 0.7, 100, 16.44, 14.59),
        (0.5, 2, 100, 15.73, 14.28),
        (1, 4, 100, 14.13, 13.21),
    ],
)
def test_poisson_sampling_by_both_accountants(q, z, rounds, rdp, pld):
    event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z))
    assert rdp_epsilon(event, rounds, DELTA) == pytest.approx(rdp, rel=2e-3)
    assert pld_epsilon(event, rounds, DELTA) == pytest.approx(pld, rel=1e-3)


@pytest.mark.parametrize(
    ("scale", "renyi", "best"),
    [(0.5, (4, 40, 154, 364), (4, 39.99, 152.6, 359.7)), (0.1, (20, 200, 794, 1964), (20, 200, 794, 1964))],
)
def test_laplace_noise_under_an_l1_clip_of_one(scale, renyi, best):
    """The second has a multiplier at the edge of what the library's grid resolves: its bound is not above Renyi's."""
    event = Event("laplace", "l1", scale / 2)
    quick = [without_libraries([(event, rounds)], DELTA).epsilon for rounds in ROUNDS]
    tight = [composed([(event, rounds)], DELTA).epsilon for rounds in ROUNDS]
    assert quick == pytest.approx(renyi, rel=2e-3)
    assert tight == pytest.approx(best, rel=2e-3 if scale == 0.5 else 2e-2)
    assert all(t <= q for t, q in zip(tight, quick, strict=True))
