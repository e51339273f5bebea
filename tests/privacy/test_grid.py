"""Numbers on a grid: what rounding moves, that nothing leaves the grid, and the law of discrete Laplace noise."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from privacy import keyed
from privacy.clip import clip
from privacy.errors import InputError
from privacy.grid import to_grid
from privacy.mechanism import Noise, noise_of_sum, noise_per_client
from privacy.plan import plan
from privacy.settings import PrivacySettings

ALPHA = 1e-6  # seeds are fixed: a failure is a wrong law, not bad luck
STEP, SCALE = 0.25, 0.8


def masses(k):
    q = np.exp(-STEP / SCALE)
    return (1 - q) / (1 + q) * q ** np.abs(k)


def chi2_p(draws, law):
    """P of the draws, in steps, under a law of whole numbers; the tails are pooled."""
    k = np.arange(-12, 13)
    inner = law(k)
    expected = np.concatenate([[(1 - inner.sum()) / 2], inner, [(1 - inner.sum()) / 2]]) * len(draws)
    edges = [-np.inf, *(k - 0.5), 12.5, np.inf]
    return stats.chisquare(np.histogram(draws, edges)[0], expected).pvalue


def test_discrete_laplace_has_its_law_at_once_and_per_client():
    at_once = noise_of_sum("discrete-laplace", SCALE, 1, (100_000,), keyed.generator(1, "test"), STEP) / STEP
    each = noise_per_client("discrete-laplace", SCALE, keyed.key(1, "n", 0), np.arange(500), 200, STEP) / STEP
    for draws in (at_once, each.ravel(), each[:, 0]):
        assert (draws == np.rint(draws)).all()
        assert chi2_p(draws, masses) > ALPHA
    wrong = noise_of_sum("discrete-laplace", SCALE * 1.1, 1, (100_000,), keyed.generator(1, "test"), STEP) / STEP
    assert chi2_p(wrong, masses) < ALPHA


@pytest.mark.parametrize(("kind", "step"), [("discrete-laplace", STEP), ("gaussian", STEP)])
@pytest.mark.parametrize("count", [2, 3, 30])
def test_sum_law_is_that_of_the_literal_sum(kind, step, count):
    literal = noise_per_client(kind, SCALE, keyed.key(2, "noise", 0), np.arange(count), 50_000, step).sum(axis=0)
    at_once = noise_of_sum(kind, SCALE, count, (50_000,), keyed.generator(2, "test"), step)
    assert stats.ks_2samp(literal, at_once).pvalue > ALPHA
    values, codes = np.unique(np.concatenate([literal, at_once]), return_inverse=True)
    counts = np.stack(
        [np.bincount(codes[:50_000], minlength=len(values)), np.bincount(codes[50_000:], minlength=len(values))]
    )
    common = counts.sum(axis=0) > 20
    assert stats.chi2_contingency(counts[:, common]).pvalue > ALPHA


@pytest.mark.parametrize("kind", ["gaussian", "discrete-laplace"])
def test_std_and_counts_per_coordinate(kind):
    noise = Noise(kind, 2.0, STEP, "grid")
    draws = noise.of_sum(np.array([[0], [1], [400]]), (3, 20_000), keyed.generator(3, "test"))
    assert not draws[0].any()
    for row, count in ((1, 1), (2, 400)):
        assert np.std(draws[row]) == pytest.approx(noise.std * count**0.5, rel=0.05)
    assert (draws / STEP == np.rint(draws / STEP)).all()


@given(
    hnp.arrays(np.float64, 9, elements=st.floats(-5, 5)),
    hnp.arrays(np.float64, 9, elements=st.floats(-5, 5)),
    st.sampled_from(["l1", "l2"]),
    st.integers(-6, 1),
)
@settings(deadline=None)
def test_two_rounded_updates_are_as_near_as_the_sensitivity_says(one, other, norm, exponent):
    for trust, second in (("local", other), ("central", np.zeros(9))):
        noisy = PrivacySettings(
            mechanism="laplace", trust=trust, clip=1.0, norm=norm, sigma=1.0, sampler="grid", grid_exponent=exponent
        )
        a, b = (to_grid(clip(v, 1.0, norm), noisy.step) for v in (one, second))
        apart = np.linalg.norm(a - b, 1 if norm == "l1" else 2)
        assert apart <= noisy.sensitivity_of(9)
        assert (a / noisy.step == np.rint(a / noisy.step)).all()


def test_without_the_correction_rounding_would_break_the_bound():
    apart = np.abs(to_grid(np.full(9, 0.11), 0.2) - to_grid(np.full(9, -0.11), 0.2)).sum()
    assert np.abs(np.full(9, 0.11)).sum() * 2 < apart


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_refuses_what_has_no_place_on_the_grid(bad):
    with pytest.raises(ValueError, match="finite values"):
        to_grid([0.0, bad], 0.25)


def test_a_law_goes_with_its_grid():
    with pytest.raises(ValueError, match="needs a grid"):
        noise_of_sum("discrete-laplace", 1.0, 1, (2,), keyed.generator(0, "n"))
    with pytest.raises(ValueError, match="laplace noise is not on a grid"):
        noise_per_client("laplace", 1.0, 0, [1], 2, 0.5)


def settled(**values):
    return PrivacySettings(**({"mechanism": "laplace", "clip": 1.0, "norm": "l1", "sigma": 1.0} | values))


def test_a_plan_with_a_grid_is_for_those_who_round():
    private = settled(sampler="grid", grid_exponent=-10)
    with pytest.raises(InputError, match="rounding to the grid costs by the size of a release: say its dimension"):
        plan(private, 10, 5, 20)
    resolved = plan(private, 10, 5, 20, dimension=64)
    assert resolved.noise == Noise("discrete-laplace", 1 / 2**0.5, 2.0**-10, "grid")
    assert resolved.sensitivity == 1 + 64 / 1024
    assert resolved.event.pure == pytest.approx(2**0.5 * (1 + 64 / 1024), rel=1e-12)
    assert resolved.promised.epsilon < 10 * resolved.event.pure


def test_calibration_on_a_grid():
    private = settled(sampler="grid", grid_exponent=-10, sigma=None, epsilon=4.0)
    resolved = plan(private, 10, 5, 20, dimension=64)
    assert 4.0 * (1 - 1e-4) <= resolved.promised.epsilon <= 4.0
    assert resolved.noise.scale > plan(settled(sigma=None, epsilon=4.0), 10, 5, 20).noise.scale


def test_opendp_is_refused_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    private = settled(mechanism="discrete-laplace", sampler="opendp", grid_exponent=-10)
    with pytest.raises(InputError, match="needs opendp: pip install"):
        plan(private, 10, 5, 20, dimension=64)


def test_opendp_draws_the_same_law():
    pytest.importorskip("opendp.prelude")
    draws = Noise("discrete-laplace", SCALE, STEP, "opendp").of_sum(1, (20_000,), keyed.generator(0, "unused")) / STEP
    assert chi2_p(draws, masses) > ALPHA
