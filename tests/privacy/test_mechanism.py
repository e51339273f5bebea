import math

import numpy as np
import pytest
from scipy import stats

from privacy.errors import InputError
from privacy.mechanism import Noise
from tests.noises import KEY, noise_of_sum, noise_per_client

ALPHA = 1e-6  # seeds are fixed: a failure is a wrong law, not bad luck
KINDS = ["gaussian", "laplace"]
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


@pytest.mark.parametrize("kind", KINDS)
def test_one_draw_has_its_law(kind):
    draws = noise_of_sum(kind, 0.3, 1, (100_000,), 1)
    assert stats.kstest(draws, LAWS[kind](scale=0.3).cdf).pvalue > ALPHA
    assert np.std(draws) == pytest.approx(Noise(kind, 0.3).std, rel=0.02)


@pytest.mark.parametrize("kind", [*KINDS, "discrete-gaussian", "discrete-laplace"])
def test_a_clients_noise_is_made_of_its_two_words_for_each_value(kind):
    step = 0.25 if kind.startswith("discrete") else None
    found = noise_per_client(kind, 0.5, [3, 9], 7, seed=4, number=2, step=step)
    words = KEY.base(4, "test", 2).words([3, 9], 7)
    for client, value in np.ndindex(2, 7):
        first, second = (int(word) for word in words[client, value])
        u, v = (first >> 11) / 2**53, (second >> 11) / 2**53
        literal = {
            "gaussian": 0.5 * math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v),
            "laplace": 0.5 * (math.log1p(-u) if first % 2 else -math.log1p(-u)),
            "discrete-gaussian": 0.25 * round(2 * math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v)),
            "discrete-laplace": 0.25 * (math.floor(-2 * math.log1p(-u)) - math.floor(-2 * math.log1p(-v))),
        }[kind]
        assert found[client, value] == pytest.approx(literal, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_fresh_per_client_coordinate_and_round(kind):
    rounds = [noise_per_client(kind, 1.0, np.arange(200), 100, number=r) for r in range(2)]
    for a, b in (
        (rounds[0], rounds[1]),
        (rounds[0][:-1], rounds[0][1:]),
        (rounds[0][:, :-1], rounds[0][:, 1:]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / a.size**0.5
        assert not (a == b).any()


def test_unknown_kind_and_impossible_count():
    with pytest.raises(InputError, match="unknown mechanism 'laplas'; did you mean 'laplace'"):
        noise_of_sum("laplas", 1.0, 1, (2,), 0)
    with pytest.raises(InputError, match="mechanism 'none' draws no noise; use one of"):
        noise_per_client("none", 1.0, [1], 2)
    with pytest.raises(ValueError, match="cannot have -1 terms"):
        noise_of_sum("gaussian", 1.0, -1, (2,), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_clients_noise_has_its_law(kind):
    draws = noise_per_client(kind, 0.3, np.arange(500), 200, seed=1)
    assert stats.kstest(draws.ravel(), LAWS[kind](scale=0.3).cdf).pvalue > ALPHA
    assert stats.kstest(draws[:, 0], LAWS[kind](scale=0.3).cdf).pvalue > ALPHA
    assert stats.kstest(draws[0], LAWS[kind](scale=0.3).cdf).pvalue > ALPHA


def test_the_sum_of_laplace_is_not_a_laplace():
    at_once = noise_of_sum("laplace", 1.0, 3, (50_000,), 2)
    assert stats.kstest(at_once, stats.laplace(scale=np.sqrt(3)).cdf).pvalue < ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_count_per_coordinate(kind):
    counts = np.array([[0], [1], [400]])
    draws = noise_of_sum(kind, 2.0, counts, (3, 20_000), 3)
    assert not draws[0].any()
    for row, count in ((1, 1), (2, 400)):
        assert np.std(draws[row]) == pytest.approx(Noise(kind, 2.0).std * count**0.5, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_a_clients_noise_does_not_depend_on_the_others(kind):
    together = noise_per_client(kind, 1.0, [3, 11, 8], 6)
    np.testing.assert_array_equal(noise_per_client(kind, 1.0, [8], 6)[0], together[2])
    np.testing.assert_array_equal(noise_per_client(kind, 1.0, [3, 11, 8], 4), together[:, :4])


def test_same_seed_same_noise():
    one, same, other = (noise_of_sum("laplace", 1.0, 5, (9,), s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not (one == other).any()
