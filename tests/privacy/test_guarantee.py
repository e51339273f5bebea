"""What single releases guarantee: against dp-accounting, against sums and integrals written out, and in order."""

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privacy.accounting import composed, epsilon_of_curve, without_libraries
from privacy.errors import InputError
from privacy.guarantee import MECHANISMS, ORDERS, Event, event_of
from privacy.settings import PrivacySettings

DELTA = 1e-5
FEW = (40, 120, 200, 260)  # numbers of orders between 1.0008 and 280


def library_curve(event):
    """At ORDERS, read off single-order accountants."""
    return [float(RdpAccountant(orders=[ORDERS[n]]).compose(event)._rdp[0]) for n in FEW]


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0, 50.0])
def test_curves_are_the_librarys(multiplier):
    gaussian = Event("gaussian", multiplier=multiplier).curve[list(FEW)]
    np.testing.assert_allclose(gaussian, library_curve(dp.GaussianDpEvent(multiplier)), rtol=1e-9)
    laplace = Event("laplace", "l1", multiplier).curve[list(FEW)]
    np.testing.assert_allclose(laplace, library_curve(dp.LaplaceDpEvent(multiplier)), rtol=1e-6)
    zcdp = Event("laplace", "l2", multiplier).curve[list(FEW)]
    np.testing.assert_allclose(zcdp, library_curve(dp.ZCDpEvent(0.5 / multiplier**2)), rtol=1e-9)


@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_laplace_curve_is_the_literal_integral(multiplier):
    for at in (150, 210):
        order = ORDERS[at]

        def power(x, order=order):
            return np.exp(
                order * stats.laplace.logpdf(x, 0, multiplier) + (1 - order) * stats.laplace.logpdf(x, 1, multiplier)
            )

        total = sum(integrate.quad(power, *ends, epsabs=1e-14)[0] for ends in ((-60, 0), (0, 1), (1, 60)))
        assert Event("laplace", "l1", multiplier).curve[at] == pytest.approx(math.log(total) / (order - 1), rel=1e-6)


@pytest.mark.parametrize(("b_in_steps", "steps"), [(0.7, 1), (3.0, 4), (20.0, 7), (5.0, 40)])
def test_discrete_laplace_curve_is_the_literal_sum(b_in_steps, steps):
    k = np.arange(-3000, 3001)
    log_p = -np.abs(k) / b_in_steps
    log_p -= np.logaddexp.reduce(log_p)
    log_q = -np.abs(k - steps) / b_in_steps - (np.logaddexp.reduce(-np.abs(k) / b_in_steps))
    curve = Event("discrete-laplace", "l1", b_in_steps / steps, steps).curve
    for at in (100, 180, 230):
        order = ORDERS[at]
        literal = np.logaddexp.reduce(order * log_p + (1 - order) * log_q) / (order - 1)
        assert curve[at] == pytest.approx(literal, rel=1e-6, abs=1e-9)


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0.1, 20))
@settings(max_examples=50, deadline=None)
def test_a_shift_in_one_coordinate_is_worse_than_one_spread_over_two(first, second, b):
    """So the scalar curve holds for a vector under an L1 clip."""

    def curve(steps):
        return Event("discrete-laplace", "l1", b / steps, steps).curve

    assert (curve(first) + curve(second) <= curve(first + second) * (1 + 1e-9) + 1e-9).all()


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_every_mechanism_says_what_it_does_not_know(name):
    guarantees = MECHANISMS[name].guarantees
    event = Event(name, multiplier=2.0 if guarantees else 0.0, steps=int(name == "discrete-laplace"))
    assert MECHANISMS[name].unknown
    assert np.isfinite(event.curve).all() == guarantees
    assert math.isfinite(composed([(event, 3)], DELTA).epsilon) == guarantees
    assert (np.diff(event.curve) >= -1e-12).all() if guarantees else np.isinf(event.curve).all()


@given(st.floats(0.2, 50), st.integers(1, 200), st.floats(1.01, 3))
@settings(max_examples=40, deadline=None)
def test_bounds_are_monotone_in_noise_and_rounds(multiplier, count, factor):
    for mechanism, norm in (("laplace", "l1"), ("laplace", "l2"), ("discrete-laplace", "l1")):
        event = Event(mechanism, norm, multiplier, int(mechanism == "discrete-laplace"))
        quieter = Event(mechanism, norm, multiplier * factor, event.steps)
        here = without_libraries([(event, count)], DELTA).epsilon
        assert without_libraries([(quieter, count)], DELTA).epsilon <= here
        assert here <= without_libraries([(event, count + 1)], DELTA).epsilon
        assert here <= count * event.pure


@pytest.mark.parametrize(("name", "norm"), [("laplace", "l1"), ("discrete-laplace", "l1")])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_nothing_is_promised_beside_noise_of_which_arithmetic_sees_nothing(name, norm, delta):
    """Sums of so many releases are normal; an epsilon of 0 says that their total variation is at most delta."""
    for multiplier in np.logspace(4, 9, 26):
        for count in {1, int((4 * delta * multiplier) ** 2) + 1}:
            event = Event(name, norm, float(multiplier), 65536 if name == "discrete-laplace" else 0)
            alone = -math.expm1(-0.5 / multiplier)
            together = 2 * stats.norm.cdf(math.sqrt(count) / multiplier / 2) - 1
            apart = alone if count == 1 else 0.9 * together
            assert without_libraries([(event, count)], delta).epsilon > 0 or apart <= delta


@given(st.permutations([("gaussian", 3.0, 12), ("gaussian", 5.0, 20), ("laplace", 4.0, 3), ("laplace", 9.0, 2)]))
@settings(max_examples=24, deadline=None)
def test_the_order_of_releases_does_not_matter(parts):
    releases = [(Event(name, "l1", multiplier), count) for name, multiplier, count in parts]
    split = [(event, 1) for event, count in releases for _ in range(count)]
    once = without_libraries(releases, DELTA)
    assert once == without_libraries(split, DELTA) == without_libraries(list(reversed(split)), DELTA)


def test_mixed_golden():
    releases = [(Event("gaussian", multiplier=3.0), 12), (Event("gaussian", multiplier=5.0), 20)]
    releases.append((Event("laplace", "l1", 4.0), 3))
    assert without_libraries(releases, DELTA) == pytest.approx((7.67, "RDP"), abs=5e-3)
    assert composed(releases, DELTA) == pytest.approx((7.13, "PLD"), abs=5e-3)


@pytest.mark.parametrize(
    ("q", "z", "rounds", "golden"), [(0.01, 1, 1000, 1.828), (0.1, 2, 40, 1.484), (256 / 60000, 1.12, 14062, 2.32)]
)
def test_poisson_sampling_golden(q, z, rounds, golden):
    found = composed([(Event("gaussian", multiplier=z, sampling=q), rounds)], DELTA)
    assert found == pytest.approx((golden, "PLD"), abs=2e-3)
    assert found.epsilon < composed([(Event("gaussian", multiplier=z), rounds)], DELTA).epsilon


def test_sampling_asks_the_library_only_for_orders_that_converge(caplog):
    composed([(Event("gaussian", multiplier=1.0, sampling=0.1), 100)], DELTA)
    assert not caplog.records


def test_so_many_releases_are_not_asked_of_a_privacy_loss_distribution():
    assert composed([(Event("laplace", "l1", 7e4), 10**9)], DELTA).method == "RDP"


def test_tiny_curves_cost_nothing():
    assert epsilon_of_curve(np.full(len(ORDERS), 1e-12), DELTA) == 0.0
    assert epsilon_of_curve(np.full(len(ORDERS), 1e-9), DELTA) > 0.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mechanism": "gausian", "multiplier": 1.0}, "unknown mechanism 'gausian'; did you mean 'gaussian'"),
        ({"mechanism": "gaussian"}, "must lie between 1e-100 and 1e\\+100, got 0"),
        ({"mechanism": "gaussian", "multiplier": math.nan}, "must lie between .*, got nan"),
        ({"mechanism": "gaussian", "multiplier": -1.0}, "must lie between"),
        ({"mechanism": "laplace", "norm": "l3", "multiplier": 1.0}, "unknown norm 'l3'"),
        ({"mechanism": "gaussian", "multiplier": 1.0, "sampling": 0.0}, "a sampling rate must be above 0"),
        ({"mechanism": "gaussian", "multiplier": 1.0, "sampling": math.nan}, "a sampling rate must be above 0"),
        ({"mechanism": "laplace", "multiplier": 1.0, "sampling": 0.5}, "under Poisson sampling is known here"),
        ({"mechanism": "discrete-laplace", "multiplier": 1.0}, "whole steps of the grid, got 0"),
    ],
)
def test_refuses_an_event_that_cannot_be(values, message):
    with pytest.raises(InputError, match=message):
        Event(**values)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_refuses_a_delta_outside_its_range(delta):
    with pytest.raises(InputError, match="delta must be between 0 and 1"):
        composed([(Event("gaussian", multiplier=1.0), 1)], delta)


def test_sampled_releases_are_not_composed_with_what_the_library_does_not_know():
    sampled = Event("gaussian", multiplier=1.0, sampling=0.1)
    with pytest.raises(InputError, match="account them apart"):
        composed([(sampled, 1), (Event("laplace", "l2", 1.0), 1)], DELTA)
    with pytest.raises(InputError, match="compose it with accounting"):
        _ = sampled.curve


def test_a_grid_costs_nothing_by_its_rounding_and_takes_the_discrete_law():
    l1 = PrivacySettings(
        mechanism="laplace", trust="local", clip=1.3, norm="l1", sigma=1.0, sampler="grid", grid_exponent=-3
    )
    event = event_of(l1, 8.0)  # two updates of whole steps are at most floor(2.6 * 8) = 20 steps of an eighth apart
    assert (event.mechanism, event.steps, event.multiplier) == ("discrete-laplace", 20, 8.0 / 2.5)
    l2 = PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, sigma=1.0, sampler="grid", grid_exponent=-3)
    assert event_of(l2, 9.0) == Event("discrete-gaussian", multiplier=4.5, steps=16)


@pytest.mark.parametrize("mechanism", ["laplace", "discrete-laplace"])
def test_the_pure_epsilon_of_laplace_noise_is_one_over_its_multiplier(mechanism):
    """A release moves by one sensitivity, so its density changes by a factor of exp(1 / multiplier) at most."""
    steps = 100 if mechanism == "discrete-laplace" else 0
    for multiplier in (0.5, 4.0):
        once = Event(mechanism, "l1", multiplier, steps)
        assert once.pure == pytest.approx(1 / multiplier)
        assert composed([(once, 7)], 1e-12).epsilon == pytest.approx(7 / multiplier, rel=1e-3)


@pytest.mark.parametrize("multiplier", [0.3, 2.0])
def test_discrete_laplace_lies_between_laplace_and_randomised_response(multiplier):
    kept = -math.log1p(math.exp(-1 / multiplier))  # log of the probability of the truth
    worst = np.logaddexp(kept + (ORDERS - 1) / multiplier, kept - ORDERS / multiplier) / (ORDERS - 1)
    finest = Event("laplace", "l1", multiplier).curve
    curves = [Event("discrete-laplace", "l1", multiplier, steps).curve for steps in (1, 2, 10, 10**6)]
    np.testing.assert_allclose(curves[0], worst, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(curves[-1], finest, rtol=1e-4, atol=1e-9)
    for coarse, fine in itertools.pairwise(curves):
        assert (coarse >= fine * (1 - 1e-9)).all()


def test_a_laplace_shift_in_one_coordinate_dominates_two_in_privacy_loss_too():
    """The hockey-stick divergence of a product of two halves is below that of the whole, numerically."""
    for whole in (0.5, 2.0):
        half = pld.from_laplace_mechanism(2.0 / whole, value_discretization_interval=1e-3)
        one = pld.from_laplace_mechanism(1.0 / whole, value_discretization_interval=1e-3)
        two = half.compose(half)
        for eps in (0.01, whole / 4, whole / 2, whole * 0.9):
            assert two.get_delta_for_epsilon(eps) <= one.get_delta_for_epsilon(eps) + 2e-3


def test_the_old_conversion_of_a_renyi_curve_golden():
    """2.92, as papers before 2020 print it; the conversion used here gives 2.52 from the same curve."""
    orders = np.arange(2, 64)
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(256 / 60000, dp.GaussianDpEvent(1.12)), 14062)
    curve = RdpAccountant(orders=orders).compose(event)._rdp
    assert (curve - math.log(DELTA) / (orders - 1)).min() == pytest.approx(2.92, abs=6e-3)
    assert RdpAccountant(orders=orders).compose(event).get_epsilon(DELTA) == pytest.approx(2.52, abs=6e-3)


def test_the_event_of_settings_normalises_the_adjacency():
    local = PrivacySettings(mechanism="gaussian", trust="local", clip=0.5, sigma=4.0)
    assert event_of(local, 2.0).multiplier == 2.0
    central = event_of(local.model_copy(update={"trust": "central"}), 2.0)
    assert central.multiplier == pytest.approx(4.0 / math.sqrt(1 + 2 / 20**2))  # two values tell what the clip did
    assert event_of(PrivacySettings(clip=1.0), None).mechanism == "none"
    assert event_of(PrivacySettings(mechanism="paper-laplace", scale=1.0), 1.0).mechanism == "paper-laplace"
    assert event_of(PrivacySettings(mechanism="gaussian", scale=1.0), 1.0).mechanism == "unclipped"
