import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy import keyed

ALPHA = 1e-6
SEEDS = st.integers(0, 2**63 - 1)
MASK = 2**64 - 1


def literal_bits(key, index):
    """SplitMix64 in whole numbers of any size."""
    x = (key + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@given(st.integers(0, MASK), st.integers(0, 2**62))
def test_bits_are_splitmix64(key, index):
    assert int(keyed.bits(key, index)) == literal_bits(key, index)


def test_reference_stream():
    """The published test vector of SplitMix64 with seed 1234567."""
    assert keyed.bits(1234567, np.arange(3)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_pinned_numbers():
    """Runs are compared across versions: a change of any stream must be noticed."""
    base = keyed.key(7, "pinned", 1, 2)
    assert base == 9503174847072517131
    assert keyed.fold(base, [0, 5]).tolist() == [15451889866463295578, 6224094366031007002]
    assert keyed.integers(base, np.arange(6), 1000).tolist() == [837, 760, 411, 504, 189, 337]
    np.testing.assert_allclose(keyed.uniform(base, np.arange(2)), [0.8376486281113128, 0.7606617902903112], rtol=1e-15)
    np.testing.assert_allclose(keyed.normal(base, np.arange(2)), [0.1276427491053364, -1.0292017260684934], rtol=1e-12)
    laplace = keyed.as_laplace(keyed.bits(base, np.arange(2)))
    np.testing.assert_allclose(laplace, [1.8179923302768861, -1.429877623978018], rtol=1e-12)
    assert keyed.choose(base, np.arange(100), 5).tolist() == [47, 61, 67, 76, 79]
    assert keyed.generator(7, "pinned").integers(0, 1000, 4).tolist() == [794, 831, 419, 510]


@pytest.mark.parametrize("bound", [2, 7, 1000])
def test_integers_are_uniform(bound):
    draws = keyed.integers(keyed.key(0, "chi"), np.arange(200_000), bound)
    assert (draws.min(), draws.max()) == (0, bound - 1)
    assert stats.chisquare(np.bincount(draws, minlength=bound)).pvalue > ALPHA


def test_laws():
    index = np.arange(100_000)
    for draw, law in ((keyed.uniform, "uniform"), (keyed.normal, "norm")):
        assert stats.kstest(draw(keyed.key(0, law), index), law).pvalue > ALPHA
    assert stats.kstest(keyed.as_laplace(keyed.bits(keyed.key(0, "laplace"), index)), "laplace").pvalue > ALPHA


@given(st.integers(0, MASK), st.integers(0, MASK))
def test_what_becomes_of_words(first, second):
    """Literal: 53 bits are a number in [0, 1), two of them a normal one, one with a sign a Laplace."""
    u, v = ((word >> 11) / 2**53 for word in (first, second))
    one, other = np.array([first], np.uint64), np.array([second], np.uint64)
    assert keyed.as_uniform(one).tolist() == [u]
    normal = math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v)
    assert keyed.as_normal(one, other)[0] == pytest.approx(normal, rel=1e-12, abs=1e-15)
    size = -math.log1p(-u)
    assert keyed.as_laplace(one)[0] == pytest.approx(size if first % 2 == 0 else -size, rel=1e-12)
    assert (one[0], other[0]) == (first, second), "words are left as they are"


def test_keys_are_independent():
    """Neighbouring clients, rounds, purposes and lags: no correlation, no joint pattern."""
    index = np.arange(50_000)
    base = keyed.key(0, "x", 0)
    stream = keyed.uniform(base, index)
    others = {
        "client": keyed.uniform(keyed.fold(base, [1])[0], index),
        "round": keyed.uniform(keyed.key(0, "x", 1), index),
        "purpose": keyed.uniform(keyed.key(0, "y", 0), index),
        "lag": keyed.uniform(base, index + 1),
    }
    for name, other in others.items():
        assert abs(np.corrcoef(stream, other)[0, 1]) < 5 / len(index) ** 0.5, name
        cells = np.bincount((stream * 8).astype(int) * 8 + (other * 8).astype(int), minlength=64)
        assert stats.chisquare(cells).pvalue > ALPHA, name


@given(SEEDS, st.permutations(range(8)))
def test_order_and_company_do_not_matter(seed, order):
    base = keyed.key(seed, "order")
    keys = keyed.fold(base, np.arange(8))
    whole = keyed.uniform(keys[:, None], np.arange(5))
    np.testing.assert_array_equal(keyed.uniform(keys[order][:, None], np.arange(5)), whole[order])
    assert keyed.uniform(keyed.fold(base, 3), 2) == whole[3, 2]


@given(SEEDS, st.integers(0, 12), st.permutations([4, 8, 15, 16, 23, 42]))
def test_choose_is_a_sorted_subset_whatever_the_order(seed, count, population):
    chosen = keyed.choose(seed, population, count).tolist()
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(population)
    assert len(chosen) == min(count, 6)
    assert chosen == keyed.choose(seed, sorted(population), count).tolist()


@pytest.mark.parametrize("count", [1, 700, 60_000, 149_999])
def test_choose_of_a_large_population_takes_the_smallest_draws(count: int) -> None:
    """Whoever cannot be among them is passed over piece by piece; by a bound that is too low, nobody is."""
    base, members = keyed.key(0, "large"), np.arange(150_000)[::-1] * 3
    smallest = members[np.argsort(keyed.fold(base, members), kind="stable")[:count]]
    assert keyed.choose(base, members, count).tolist() == sorted(smallest.tolist())


def test_every_part_of_a_key_matters():
    seeds, purposes, paths = range(4), ("a", "b"), ((), (1,), (1, 1), (11,), (1, 2))
    keys = {keyed.key(seed, purpose, *path) for seed in seeds for purpose in purposes for path in paths}
    assert len(keys) == len(seeds) * len(purposes) * len(paths)


def test_integers_are_uniform_across_clients_too():
    keys = keyed.fold(keyed.key(0, "chi"), np.arange(200_000))
    assert stats.chisquare(np.bincount(keyed.integers(keys, 0, 50), minlength=50)).pvalue > ALPHA


@given(SEEDS, st.integers(1, 2**31 - 1))
def test_integers_stay_below_their_bound(seed, bound):
    draws = keyed.integers(keyed.key(seed, "b"), np.arange(50), bound)
    assert ((draws >= 0) & (draws < bound)).all()


def test_choose_takes_every_pair_alike():
    counts = np.zeros((6, 6))
    for number in range(6000):
        first, second = keyed.choose(keyed.key(0, "pairs", number), np.arange(6), 2)
        counts[first, second] += 1
    assert stats.chisquare(counts[np.triu_indices(6, 1)]).pvalue > ALPHA


def test_generators_of_other_purposes_differ():
    one, same, other = (keyed.generator(0, p, 1).random(20) for p in ("a", "a", "b"))
    np.testing.assert_array_equal(one, same)
    assert not (one == other).any()
