"""Golden numbers (delta = 1e-5) are from independent accountants; the rest are laws any accountant obeys."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from privacy import accounting
from privacy.accounting import (
    chance_above,
    composed,
    gaussian_epsilon,
    noise_for,
    nominal_epsilon,
    pld_epsilon,
    rdp_epsilon,
)
from privacy.errors import InputError
from privacy.guarantee import Event, event_of
from privacy.settings import PrivacySettings

DELTA = 1e-5
ROUNDS = (1, 10, 40, 100)


def compose(mechanism, norm, multiplier, rounds, delta):
    return composed([(Event(mechanism, norm, multiplier), rounds)], delta)


def epsilon(settings, rounds, scale):
    return composed([(event_of(settings, scale), rounds)], settings.delta)


def of(mechanism, **values):
    """Noise in floating point, whose closed forms are known, unless another sampler is named."""
    return PrivacySettings(**({"mechanism": mechanism, "clip": 1.0, "sigma": 1.0, "sampler": "float"} | values))


@pytest.mark.parametrize(
    ("z", "golden"), [(1, (4.3772, 17.8566, 46.2112, 91.8173)), (4, (0.9263, 3.3414, 7.5113, 13.2067))]
)
def test_gaussian_golden(z, golden):
    assert [gaussian_epsilon(z, rounds, DELTA) for rounds in ROUNDS] == pytest.approx(golden, abs=6e-5)


@pytest.mark.parametrize("z", [1.0, 4.0])
def test_gaussian_is_the_literal_hockey_stick(z):
    """delta(eps) = integral of (p - e^eps q)+ for N(mu, 1) against N(0, 1)."""
    eps, mu = gaussian_epsilon(z, 10, DELTA), math.sqrt(10) / z

    def excess(x):
        return max(0.0, stats.norm.pdf(x, mu) - math.exp(eps) * stats.norm.pdf(x))

    start = eps / mu + mu / 2  # where the two densities cross
    area, _ = integrate.quad(excess, start, start + 12, epsabs=1e-14)
    assert area == pytest.approx(DELTA, rel=1e-4)


def test_laplace_golden():
    event = dp.LaplaceDpEvent(4.0)
    assert [rdp_epsilon(event, t, DELTA) for t in ROUNDS] == pytest.approx((0.2528, 2.490, 7.17, 12.99), abs=6e-3)
    assert [pld_epsilon(event, t, DELTA) for t in ROUNDS] == pytest.approx((0.25, 2.49, 6.78, 12.22), abs=6e-3)


def test_laplace_under_an_l1_clip_takes_the_best_bound():
    for rounds, pure in zip(ROUNDS, (0.25, 2.5, 10, 25), strict=True):
        assert compose("laplace", "l1", 4.0, rounds, DELTA).epsilon <= pure
    assert compose("laplace", "l1", 4.0, 40, DELTA) == pytest.approx((6.782, "PLD"), abs=1e-3)
    # so little noise that the grid does not resolve it: one round costs 1 / b, more take Renyi composition
    assert compose("laplace", "l1", 1 / 40, 1, DELTA) == (40.0, "pure")
    assert compose("laplace", "l1", 1 / 40, 100, DELTA).method == "RDP"


@pytest.mark.parametrize(
    ("scale", "bound", "golden"),
    [
        (0.1, 1.0, (293, 2300, 8604, 20970)),
        (0.5, 1.0, (26.0, 139, 439, 989)),
        (0.5, 2.71, (109, 749, 2675, 6394)),
        (0.1, 2.71, (1725, 15510, 60500, 150400)),
    ],
)
def test_laplace_under_an_l2_clip_golden(scale, bound, golden):
    """Local, replace-one; a published scale b with the update clipped to L2 `bound`."""
    clipped = PrivacySettings(mechanism="laplace", trust="local", clip=bound, scale=scale, sampler="float")
    found = [epsilon(clipped, rounds, scale) for rounds in ROUNDS]
    on_grid = clipped.model_copy(update={"sampler": "grid"})
    assert found == [epsilon(on_grid, rounds, scale) for rounds in ROUNDS]
    assert {guarantee.method for guarantee in found} == {"zCDP->RDP"}
    # the golden numbers leave out orders below 1.01, which matter for the last one alone (149,477: 0.6 % less)
    assert [guarantee.epsilon for guarantee in found] == pytest.approx(golden, rel=6.5e-3)


def test_replace_one_doubles_the_sensitivity_once():
    local, central = of("laplace", trust="local"), of("laplace", trust="central")
    assert epsilon(local, 40, 8.0) == epsilon(central, 40, 4.0)
    for sampler in ("float", "grid"):
        local, central = (of("gaussian", trust=trust, sampler=sampler) for trust in ("local", "central"))
        assert epsilon(local, 40, 8.0) == pytest.approx((7.5113, "GDP closed form"), abs=6e-5)
        # a sum tells what the clip did in two values of a twentieth of the clip each
        more = math.sqrt(1 + 2 / 20**2)
        assert epsilon(central, 40, 4.0 * more).epsilon == pytest.approx(7.5113, abs=6e-5)


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0, 30.0])
def test_few_steps_of_discrete_gaussian_cost_the_literal_conversion_of_their_zcdp(z):
    """Canonne, Kamath & Steinke 2020, Thm. 14 and Prop. 12, the order found by a continuous search."""
    for rounds in ROUNDS:
        rho = rounds / (2 * z * z)

        def at(log_order, rho=rho):
            order = 1 + math.exp(log_order)
            return rho * order + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1)

        best = optimize.minimize_scalar(at, bounds=(-9, 9), method="bounded").fun
        found = composed([(Event("discrete-gaussian", multiplier=z, steps=0), rounds)], DELTA)
        assert (found.epsilon, found.method) == (pytest.approx(best, rel=2e-3), "zCDP->RDP")
        assert gaussian_epsilon(z, rounds, DELTA) < found.epsilon


@pytest.mark.parametrize(
    ("mechanism", "trust", "golden", "tolerance"),
    [
        ("gaussian", "local", (1.20, 3.80, 7.59, 12.0), 6e-3),
        ("gaussian", "central", (0.6017, 1.9028, 3.8057, 6.0173), 1e-3),
        ("laplace", "local", (1.28, 4.03, 8.07, 12.8), 5e-2),
    ],
)
def test_calibration_golden(mechanism, trust, golden, tolerance):
    found = [noise_for(8.0, of(mechanism, trust=trust), rounds) for rounds in ROUNDS]
    assert found == pytest.approx(golden, abs=tolerance)
    on_grid = [noise_for(8.0, of(mechanism, trust=trust, sampler="grid"), rounds) for rounds in ROUNDS]
    assert on_grid == pytest.approx(found, rel=2e-4)


@pytest.mark.parametrize(("mechanism", "norm"), [("gaussian", "l2"), ("laplace", "l2"), ("laplace", "l1")])
@pytest.mark.parametrize("target", [0.5, 8.0, 60.0])
def test_calibration_is_the_inverse_of_epsilon(mechanism, norm, target):
    chosen = of(mechanism, norm=norm, trust="local")
    scale = noise_for(target, chosen, 10)
    assert target * (1 - 1e-4) <= epsilon(chosen, 10, scale).epsilon <= target
    assert epsilon(chosen, 10, scale * (1 - 1e-5)).epsilon > target * (1 - 1e-9)


@given(st.floats(0.05, 50), st.integers(1, 400), st.floats(1.01, 3), st.floats(1e-9, 1e-2))
@settings(max_examples=60, deadline=None)
def test_gaussian_is_monotone(z, rounds, factor, delta):
    here = gaussian_epsilon(z, rounds, delta)
    assert gaussian_epsilon(z * factor, rounds, delta) <= here <= gaussian_epsilon(z, rounds + 1, delta)
    assert gaussian_epsilon(z, rounds, min(delta * factor, 0.5)) <= here


def test_extremes_stay_finite_and_ordered():
    assert gaussian_epsilon(1e9, 1, DELTA) == 0.0
    assert 1e12 < gaussian_epsilon(1e-6, 40, DELTA) < 1e14
    for mechanism, norm in (("gaussian", "l2"), ("laplace", "l2")):
        assert 0 < noise_for(1e9, of(mechanism, norm=norm), 40) < noise_for(1e-9, of(mechanism, norm=norm), 40)


def test_no_clip_no_noise_no_guarantee():
    unclipped = PrivacySettings(mechanism="laplace", scale=0.5)
    assert epsilon(unclipped, 1, 0.5) == (math.inf, "no clip")
    assert epsilon(PrivacySettings(clip=1.0), 1, None) == (math.inf, "no noise")
    assert epsilon(of("gaussian"), 0, 1.0) == (0.0, "nothing was released")
    with pytest.raises(InputError, match="only with a mechanism and a clip: set both"):
        noise_for(8.0, unclipped, 40)


@pytest.mark.parametrize(("multiplier", "epsilon"), [(1.0, 4.0), (0.8, 6.5), (4.0, 1.0)])
def test_the_chance_of_a_larger_loss_than_epsilon_is_that_of_a_normal_loss(multiplier, epsilon):
    """One Gaussian release moved by 1: at x the loss is (1 - 2 x) / (2 m^2), above epsilon where x is small enough."""
    expected = stats.norm.cdf(0.5 - epsilon * multiplier**2, scale=multiplier)
    assert chance_above([(Event("gaussian", multiplier=multiplier), 1)], epsilon) == pytest.approx(expected, rel=1e-9)
    on_grid = accounting._pld_chance_above(dp.GaussianDpEvent(multiplier), epsilon)
    assert on_grid == pytest.approx(expected, rel=0.02)


def test_the_chance_of_a_larger_loss_is_read_off_the_distribution_of_a_mixture():
    """Laplace noise of b = 2 on a sum of sensitivity 1: above 0.3 the loss is where x is below 0.2."""
    event = Event("laplace", "l1", 2.0)
    found = accounting._pld_chance_above(dp.LaplaceDpEvent(2.0), 0.3)
    assert found == pytest.approx(1 - 0.5 * math.exp(-0.2 / 2), rel=0.01)
    assert chance_above([(event, 1)], 0.5) == 0.0, "no loss is above a pure epsilon"
    both = [(event, 2), (Event("gaussian", multiplier=2.0), 3)]
    most = composed(both, 1e-5).epsilon
    assert 1e-5 < chance_above(both, most) < 1e-3


def test_no_chance_is_said_where_the_loss_is_not_known():
    discrete = Event("discrete-gaussian", multiplier=4.0)
    assert chance_above([(discrete, 3)], 2.0) is None
    assert chance_above([(Event("none"), 3)], math.inf) is None
    assert chance_above([], 0.0) is None


@pytest.mark.parametrize("z", [1.0, 4.0])
@pytest.mark.parametrize("rounds", [1, 40])
def test_gaussian_agrees_with_privacy_loss_distributions(z, rounds):
    # the library works with the sensitivity-1 relation: no doubling for replace-one, which edgefr does itself
    numeric = pld_epsilon(dp.GaussianDpEvent(z), rounds, DELTA)
    exact = gaussian_epsilon(z, rounds, DELTA)
    assert exact - 1e-6 <= numeric <= exact + 1e-3 * math.sqrt(rounds)


@pytest.mark.parametrize("multiplier", [0.1, 0.5, 2.0, 20.0])
def test_zcdp_is_between_its_gaussian_limit_and_the_plain_conversion(multiplier):
    rho = 40 * 0.5 / multiplier**2
    plain = rho + 2 * math.sqrt(rho * math.log(1 / DELTA))
    found = compose("laplace", "l2", multiplier, 40, DELTA).epsilon
    assert gaussian_epsilon(multiplier, 40, DELTA) < found < plain


@pytest.mark.parametrize("rho", [1e-3, 0.5, 8.0, 2000.0])
def test_renyi_orders_are_fine_enough(rho):
    """Against the same conversion with the order found by a continuous search."""

    def at(log_order):
        order = 1 + math.exp(log_order)
        return rho * order + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1)

    best = optimize.minimize_scalar(at, bounds=(-9, 7), method="bounded").fun
    assert rdp_epsilon(dp.ZCDpEvent(rho), 1, DELTA) == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize(
    ("q", "z", "rounds", "rdp", "pld"), [(0.01, 1, 1000, 2.101, 1.829), (0.1, 2, 40, 1.663, 1.484)]
)
def test_library_accountants_on_poisson_sampling(q, z, rounds, rdp, pld):
    """edgefr claims no amplification; this pins that events, grid and orders reach the library as meant."""
    event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z))
    assert rdp_epsilon(event, rounds, DELTA) == pytest.approx(rdp, abs=3e-3)
    assert pld_epsilon(event, rounds, DELTA) == pytest.approx(pld, abs=3e-3)


def test_fcucr_nominal():
    found = [round(nominal_epsilon(std, DELTA), 2) for std in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    assert found == [48.45, 24.22, 16.15, 12.11, 9.69, 8.07]


@pytest.mark.parametrize(
    ("std", "gaussian", "laplace", "local", "forty"),
    [
        (0.1, 91.8, 165.6, 532.9, (4426, 16859)),
        (0.2, 33.1, 57.3, 165.6, (1211, 4426)),
        (0.3, 19.1, 32.3, 87.8, (585, 2060)),
        (0.4, 13.2, 22.0, 57.3, (355, 1211)),
        (0.5, 10.0, 16.5, 41.6, (243, 809)),
        (0.6, 8.0, 13.1, 32.3, (180, 585)),
    ],
)
def test_fcucr_noise_had_it_been_clipped_to_one(std, gaussian, laplace, local, forty):
    b = std / math.sqrt(2)
    assert gaussian_epsilon(std, 1, DELTA) == pytest.approx(gaussian, abs=0.06)
    assert compose("laplace", "l2", b, 1, DELTA).epsilon == pytest.approx(laplace, rel=6e-3)
    assert compose("laplace", "l2", b / 2, 1, DELTA).epsilon == pytest.approx(local, rel=6e-3)
    for sensitivity, golden in zip((1, 2), forty, strict=True):
        assert compose("laplace", "l2", b / sensitivity, 40, DELTA).epsilon == pytest.approx(golden, rel=6e-3)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_laplace_is_monotone(norm):
    table = np.array([[compose("laplace", norm, m, t, DELTA).epsilon for t in (1, 7, 40)] for m in (0.3, 1, 6)])
    assert (np.diff(table, axis=0) < 0).all()
    assert (np.diff(table, axis=1) > 0).all()


def test_n_releases_are_one_release_of_the_same_mu():
    assert gaussian_epsilon(8.0, 4, DELTA) == pytest.approx(gaussian_epsilon(4.0, 1, DELTA), rel=1e-9)
