"""Numbers on a grid: what rounding moves, that nothing leaves the grid, and the law of discrete Laplace noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from privacy.clip import clip
from privacy.errors import InputError
from privacy.grid import to_grid
from privacy.mechanism import Noise
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.noises import noise_of_sum, noise_per_client

ALPHA = 1e-6  # seeds are fixed: a failure is a wrong law, not bad luck
STEP, SCALE = 0.25, 0.75
LAWS = pytest.mark.parametrize(
    ("kind", "step"), [("gaussian", None), ("laplace", None), ("discrete-gaussian", STEP), ("discrete-laplace", STEP)]
)


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
    at_once = noise_of_sum("discrete-laplace", SCALE, 1, (100_000,), 1, STEP) / STEP
    each = noise_per_client("discrete-laplace", SCALE, np.arange(500), 200, step=STEP) / STEP
    for draws in (at_once, each.ravel(), each[:, 0]):
        assert (draws == np.rint(draws)).all()
        assert chi2_p(draws, masses) > ALPHA
    wrong = noise_of_sum("discrete-laplace", SCALE + STEP, 1, (100_000,), 1, STEP) / STEP
    assert chi2_p(wrong, masses) < ALPHA


@LAWS
@pytest.mark.parametrize("count", [2, 3, 30])
def test_sum_law_is_that_of_the_literal_sum(kind, step, count):
    literal = noise_per_client(kind, SCALE, np.arange(count), 50_000, 2, step=step).sum(axis=0)
    at_once = noise_of_sum(kind, SCALE, count, (50_000,), 2, step)
    assert stats.ks_2samp(literal, at_once).pvalue > ALPHA
    assert np.std(at_once) == pytest.approx(Noise(kind, SCALE, step).std * count**0.5, rel=0.03)
    if step is None:
        return
    values, codes = np.unique(np.concatenate([literal, at_once]), return_inverse=True)
    counts = np.stack(
        [np.bincount(codes[:50_000], minlength=len(values)), np.bincount(codes[50_000:], minlength=len(values))]
    )
    common = counts.sum(axis=0) > 20
    assert stats.chi2_contingency(counts[:, common]).pvalue > ALPHA


@LAWS
def test_std_and_counts_per_coordinate(kind, step):
    noise = Noise(kind, 2.0, step)
    draws = noise_of_sum(kind, 2.0, np.array([[0], [1], [400]]), (3, 20_000), 3, step)
    assert not draws[0].any()
    for row, count in ((1, 1), (2, 400)):
        assert np.std(draws[row]) == pytest.approx(noise.std * count**0.5, rel=0.05)
    assert step is None or (draws / step == np.rint(draws / step)).all()


@given(
    hnp.arrays(np.float64, 9, elements=st.floats(-5, 5)),
    hnp.arrays(np.float64, 9, elements=st.floats(-5, 5)),
    st.sampled_from(["l1", "l2"]),
    st.integers(-6, 1),
)
@settings(deadline=None)
def test_two_rounded_updates_are_as_near_as_if_nothing_was_rounded(one, other, norm, exponent):
    for trust, second in (("local", other), ("central", np.zeros(9))):
        noisy = PrivacySettings(
            mechanism="laplace", trust=trust, clip=1.0, norm=norm, sigma=1.0, sampler="grid", grid_exponent=exponent
        )
        a, b = (to_grid(clip(v, 1.0, norm), noisy.step) for v in (one, second))
        apart = np.linalg.norm(a - b, 1 if norm == "l1" else 2)
        assert apart <= noisy.sensitivity
        assert (a / noisy.step == np.rint(a / noisy.step)).all()


@given(hnp.arrays(np.float32, 7, elements=st.floats(-3, 3, width=32)), st.integers(-12, 2))
@settings(deadline=None)
def test_rounding_makes_no_value_longer(values, exponent):
    rounded = to_grid(values, 2.0**exponent)
    assert (np.abs(rounded) <= np.abs(values)).all()
    assert (np.abs(rounded - values) < 2.0**exponent).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_refuses_what_has_no_place_on_the_grid(bad):
    with pytest.raises(ValueError, match="finite values"):
        to_grid([0.0, bad], 0.25)


def test_a_law_goes_with_its_grid():
    with pytest.raises(ValueError, match="needs a grid"):
        noise_of_sum("discrete-laplace", 1.0, 1, (2,))
    with pytest.raises(ValueError, match="laplace noise is not on a grid"):
        noise_per_client("laplace", 1.0, [1], 2, step=0.5)


def settled(**values):
    return PrivacySettings(**({"mechanism": "laplace", "clip": 1.0, "norm": "l1", "sigma": 1.0} | values))


def test_a_plan_on_a_grid_rounds_the_scale_up():
    resolved = plan(settled(sampler="grid", grid_exponent=-10), 10, 5, 20)
    assert resolved.noise == Noise("discrete-laplace", 725 / 1024, 2.0**-10)
    assert 724 / 1024 < 1 / 2**0.5 < resolved.noise.scale
    assert resolved.sensitivity == 1
    assert resolved.event.pure == pytest.approx(1024 / 725, rel=1e-12)
    assert resolved.promised.epsilon < 10 * resolved.event.pure


def test_a_grid_is_the_default_of_clipped_updates():
    assert settled().step == 2.0**-15
    assert settled(clip=0.3).step == 2.0**-17
    assert settled(sampler="float").step is None
    assert settled(clip=None, sigma=None, scale=0.5).step is None
    assert PrivacySettings(mechanism="gaussian", clip=3.0, sigma=1.0).law == "discrete-gaussian"
    with pytest.raises(
        InputError, match=r"steps of 2 \*\* -15, and an upload of 32-bit numbers takes 16,777,216: raise"
    ):
        plan(settled(sigma=None, scale=600.0), 10, 5, 20)


def test_rounding_to_the_nearest_would_break_the_bound():
    nearest = np.rint(np.full(9, 0.11) / 0.2) * 0.2
    assert np.abs(nearest).sum() > np.abs(np.full(9, 0.11)).sum() >= np.abs(to_grid(np.full(9, 0.11), 0.2)).sum()


def test_noise_of_a_grid_is_whole_steps():
    with pytest.raises(InputError, match="is not a whole number of steps"):
        Noise("discrete-laplace", 0.3, 0.25)


def test_calibration_on_a_grid():
    private = settled(sampler="grid", grid_exponent=-10, sigma=None, epsilon=4.0)
    resolved = plan(private, 10, 5, 20)
    assert 4.0 * (1 - 2e-3) <= resolved.promised.epsilon <= 4.0
