import math

import numpy as np
import pytest
from scipy import stats

from privacy import keyed
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.privunit import PrivUnitG
from tests.noises import KEY

ALPHA = 1e-6


@pytest.mark.parametrize(("epsilon", "golden"), [(8.0, 0.133), (4.0, 0.44), (1.0, 6.3)])
def test_error_golden(epsilon, golden):
    found = PrivUnitG.of(epsilon)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert found.error == pytest.approx(golden, rel=0.02)


def test_parameters_are_the_best_of_a_literal_grid():
    shares = np.linspace(0.01, 0.99, 99)
    grid = [PrivUnitG(1 / (1 + math.exp(-4 * s)), 1 / (1 + math.exp(-4 * (1 - s)))).error for s in shares]
    assert PrivUnitG.of(4.0).error <= min(grid) * (1 + 1e-6)


def test_outputs_have_the_stated_law_and_are_unbiased():
    law, size, clients = PrivUnitG.of(4.0), 8, np.arange(60_000)
    unit = np.eye(size)[2]
    out = law.release(np.tile(5.0 * unit, (len(clients), 1)), KEY.base(0, "privunit"), clients) * law.mean
    along, across = out[:, 2], np.delete(out, 2, axis=1)
    threshold = stats.norm.ppf(law.below)
    assert (along >= threshold).mean() == pytest.approx(law.likely, abs=5 * 0.5 / len(clients) ** 0.5)
    above = stats.norm.sf(along[along >= threshold]) / stats.norm.sf(threshold)
    below = stats.norm.cdf(along[along < threshold]) / stats.norm.cdf(threshold)
    for uniform in (above, below):
        assert stats.kstest(uniform, "uniform").pvalue > ALPHA
    assert stats.kstest(across.ravel(), "norm").pvalue > ALPHA
    assert abs(np.corrcoef(along, across[:, 0])[0, 1]) < 5 / len(clients) ** 0.5
    np.testing.assert_allclose(out.mean(axis=0) / law.mean, unit, atol=6 / law.mean / len(clients) ** 0.5)


def test_no_output_is_likelier_by_more_than_epsilon():
    """The literal ratio of densities, cap against the rest."""
    law = PrivUnitG.of(2.5)
    cap, rest = law.likely / (1 - law.below), (1 - law.likely) / law.below
    assert math.log(cap / rest) == pytest.approx(2.5, rel=1e-9)


def test_the_ledger_counts_its_pure_epsilon():
    law = PrivUnitG.of(0.5)
    assert composed([(law.event, 2)], 1e-5).method == "pure"
    assert composed([(law.event, 2)], 1e-5).epsilon == pytest.approx(1.0, rel=1e-9)
    assert composed([(law.event, 400)], 1e-5).method == "RDP"


def test_any_vector_is_some_direction_and_a_draw_is_the_clients_own():
    law, base = PrivUnitG.of(4.0), KEY.base(1, "privunit")
    vectors = np.array([[0.0, 0, 0], [np.nan, 1, 0], [np.inf, 0, 1], [1e300, 1e300, 0], [1e-300, 0, 0]])
    out = law.release(vectors, base, np.arange(5))
    assert np.isfinite(out).all()
    np.testing.assert_array_equal(law.release(vectors[3:4], base, [3])[0], out[3])


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_refuses_an_epsilon_that_is_none(epsilon):
    with pytest.raises(InputError, match="epsilon must be a number above 0"):
        PrivUnitG.of(epsilon)


@pytest.mark.parametrize(("likely", "below"), [(0.6, 0.55), (0.9, 0.8), (0.51, 0.9)])
def test_mean_is_that_of_the_two_truncated_normals(likely, below):
    """Literal: p of a normal above its threshold and 1 - p of one below; any constant 1 % off is seen."""
    threshold = stats.norm.ppf(below)
    above, under = stats.truncnorm.mean(threshold, np.inf), stats.truncnorm.mean(-np.inf, threshold)
    assert PrivUnitG(likely, below).mean == pytest.approx(likely * above + (1 - likely) * under, rel=1e-9)


def drawn(real, *given):
    """`keyed.as_uniform` that gives these two numbers when it is asked for two."""
    return lambda words: np.array([given]) if words.shape == (1, 2) else real(words)


@pytest.mark.parametrize("place", [0.0625, 0.5, 0.999])
def test_a_draw_is_the_quantile_of_its_branch(monkeypatch, place):
    """Below the threshold mass q * place, above it q + (1 - q) * place, both to the last digits."""
    law, unit = PrivUnitG(0.7, 0.6), np.eye(5)[:1]
    real = keyed.as_uniform
    for cap, mass in ((0.9, 0.6 * place), (0.1, 0.6 + 0.4 * place)):
        monkeypatch.setattr(keyed, "as_uniform", drawn(real, cap, place))
        out = law.release(unit, KEY.base(0, "privunit"), [3]) * law.mean
        assert out[0, 0] == pytest.approx(stats.norm.ppf(mass), rel=1e-9)
