import math

import numpy as np
import pytest
from scipy import stats

from privacy import keyed
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.privunit import PrivUnitG

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
    out = law.release(np.tile(5.0 * unit, (len(clients), 1)), keyed.key(0, "privunit"), clients) * law.mean
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
    law, base = PrivUnitG.of(4.0), keyed.key(1, "privunit")
    vectors = np.array([[0.0, 0, 0], [np.nan, 1, 0], [np.inf, 0, 1], [1e300, 1e300, 0], [1e-300, 0, 0]])
    out = law.release(vectors, base, np.arange(5))
    assert np.isfinite(out).all()
    np.testing.assert_array_equal(law.release(vectors[3:4], base, [3])[0], out[3])


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_refuses_an_epsilon_that_is_none(epsilon):
    with pytest.raises(InputError, match="epsilon must be a number above 0"):
        PrivUnitG.of(epsilon)
