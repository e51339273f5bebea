"""Exact noise has its law, is made of whole numbers and the system's bits alone, and planted faults show."""

import ast
import math
import random
import secrets
import time
import tracemalloc
from decimal import Decimal, localcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from privacy import exact
from privacy.errors import InputError
from privacy.exact import LARGEST, Bits, discrete_gaussian, discrete_laplace, system_bits

ALPHA = 1e-6  # tests feed fixed bits: a failure is a wrong law, not bad luck
ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "privacy" / "exact.py").read_text()
BOTH = pytest.mark.parametrize("law", ["gaussian", "laplace"])


def fed(seed, kind=Bits):
    """Bits that a test can repeat: a type of the tests' own, since nothing seeded is a `Bits`."""

    class Fed(kind):
        def __init__(self):
            self.generator = np.random.Generator(np.random.PCG64(seed))

        def words(self, count):
            return self.generator.integers(0, 1 << 64, count, dtype=np.uint64)

    return Fed()


def listed(*words):
    """These words first, then fed ones."""
    rest = fed(0)

    class Listed(Bits):
        def __init__(self):
            self.left = list(words)

        def words(self, count):
            first, self.left = self.left[:count], self.left[count:]
            return np.concatenate([np.array(first, np.uint64), rest.words(count - len(first))])

    return Listed()


def draws(law, scale, size, seed=1, module=exact):
    return getattr(module, f"discrete_{law}")(scale, size, fed(seed, module.Bits))


def masses(law, scale, edges):
    """Exact P(edges[i] <= k < edges[i + 1]), with what is beyond both ends in the first and the last."""
    if scale > 5000:  # sums of exp(-k**2 / 2 s**2) between halves are integrals up to a relative 1 / s**2
        at = (np.asarray(edges, dtype=np.float64) - 0.5) / scale
        ratio = math.exp(-1 / scale)
        tail = np.exp(-np.abs(np.asarray(edges) - (np.asarray(edges) > 0)) / scale) / (1 + ratio)
        below = stats.norm.cdf(at) if law == "gaussian" else np.where(np.asarray(edges) > 0, 1 - ratio * tail, tail)
    else:
        k = np.arange(-45 * scale, 45 * scale + 1, dtype=np.float64)
        weight = np.exp(-(k**2) / (2 * scale**2)) if law == "gaussian" else np.exp(-np.abs(k) / scale)
        below = np.array([math.fsum(weight[k < edge]) for edge in edges]) / math.fsum(weight)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)


def bins(scale):
    """Whole numbers one by one near zero, 40 ranges for a large scale; ends out where 1e-3 of the law is left."""
    reach = 7 * scale
    return np.arange(-min(reach, 30), min(reach, 30) + 2) if scale <= 4 else np.linspace(-reach, reach, 41).astype(int)


def chi2_p(law, scale, found):
    edges = bins(scale)
    expected = masses(law, scale, edges) * len(found)
    counts = np.histogram(np.clip(found, edges[0], edges[-1] - 1), edges)[0].astype(float)
    many = expected > 10
    few = [counts[~many].sum()], [expected[~many].sum()]
    pooled = few if few[1][0] > 10 else ([], [])
    counts, expected = np.append(counts[many], pooled[0]), np.append(expected[many], pooled[1])
    return stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


@BOTH
@pytest.mark.parametrize("scale", [1, 2, 3, 50, 1000, 1 << 20, LARGEST])
def test_draws_have_their_law(law, scale):
    found = draws(law, scale, 400_000)
    assert found.dtype == np.int64
    assert chi2_p(law, scale, found) > ALPHA
    wrong = max(2, scale + scale // 40 + 1)
    assert chi2_p(law, wrong, found) < ALPHA


@BOTH
@pytest.mark.parametrize("scale", [1, 50, 1 << 20])
def test_moments_symmetry_and_independence(law, scale):
    found, count = draws(law, scale, 500_000, seed=4), 500_000
    ratio = math.exp(-1 / scale)
    k = np.arange(-60, 61)
    weight = np.exp(-(k**2) / 2)
    variance = (
        2 * ratio / (1 - ratio) ** 2
        if law == "laplace"
        else (float((k**2 * weight).sum() / weight.sum()) if scale == 1 else float(scale) ** 2)
    )
    assert abs(found.mean()) < 5 * math.sqrt(variance / count)
    assert np.mean(found.astype(float) ** 2) == pytest.approx(variance, rel=0.015)
    above, below = int((found > 0).sum()), int((found < 0).sum())
    assert abs(above - below) < 5 * math.sqrt(above + below)
    for lag in (1, 2, exact.CHUNK):
        assert abs(np.corrcoef(found[lag:], found[:-lag])[0, 1]) < 5 / math.sqrt(count)
        sizes = np.abs(found)
        assert abs(np.corrcoef(sizes[lag:], sizes[:-lag])[0, 1]) < 5 / math.sqrt(count)
    table = [np.bincount(np.minimum(np.abs(found[chosen]) // scale, 3))[1:] for chosen in (found > 0, found < 0)]
    assert stats.chi2_contingency(table).pvalue > ALPHA


PLANTED = {
    "minus zero is kept": ("keep &= (found != 0) | ~negative", "pass"),
    "modulo of short words": ("out = bits.words(count) // piece", "out = bits.words(count) % 251 % bound"),
    "a word left over becomes the first": ("out[left] = bits.words(len(left)) // piece", "out[left] = 0"),
    "the place is always kept": ("keep = _survives(place * place, 2 * scale * scale, bits)", "keep = place == place"),
    "exp(-place**2 / s**2)": ("place * place, 2 * scale * scale", "place * place, scale * scale"),
    "the block is forgotten": ("keep[again] = _survives(place[again], scale, bits)", "pass"),
    "one block too few": ("(block > passed)", "(block > passed + 1)"),
    "the chain stops at two events": ("number % 2 == 1", "(number % 2 == 1) | (number > 2)"),
    "a block too far": ('side="right")', 'side="right") + 1'),
    "the sign is always plus": ("np.where(negative, -found, found)", "found"),
    "the other block's law": ("lambda n: n * n,", "lambda n: 2 * n,"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_chi_square_finds_planted_faults(fault):
    old, new = PLANTED[fault]
    assert SOURCE.count(old) == 1
    module = ModuleType("planted")
    changed = SOURCE.replace(old, new)
    if "left over" in fault:  # visible only where a good part is left over
        changed = changed.replace("((1 << WORD) - 1) // bound", "((1 << WORD) - 1) // bound * 5 // 6")
    exec(compile(changed, "planted", "exec"), module.__dict__)
    law = "gaussian" if "place" in fault or "block" in fault else "laplace"
    scale = 2 if "zero" in fault or "sign" in fault else 50
    assert chi2_p(law, scale, draws(law, scale, 200_000, module=module)) < ALPHA


def test_blocks_thresholds_are_the_first_digits_of_the_exact_probabilities():
    weights = {"gaussian": lambda n: (-Decimal(n * n) / 2).exp(), "laplace": lambda n: Decimal(-n).exp()}
    with localcontext() as context:
        context.prec = 120
        for law, weight in weights.items():
            total = sum(weight(n) for n in range(300))
            for places in (64, 128, 192):
                table = exact._thresholds(law, places)
                assert table[-1] == 2**places - 1
                for n, found in enumerate(table):
                    assert found == int(sum(weight(i) for i in range(n + 1)) / total * 2**places)


@BOTH
def test_a_word_that_equals_a_threshold_is_decided_by_further_digits(law):
    short, long = exact._thresholds(law, 64), exact._thresholds(law, 128)
    for n in (0, 1, 2):
        rest = long[n] - (short[n] << 64)
        assert exact._blocks(law, 1, listed(short[n], rest - 1)).tolist() == [n]
        assert exact._blocks(law, 1, listed(short[n], rest + 1)).tolist() == [n + 1]
        assert exact._blocks(law, 1, listed(short[n], rest, 0)).tolist() == [n]
        assert exact._blocks(law, 1, listed(short[n], rest, 2**64 - 1)).tolist() == [n + 1]
        assert exact._blocks(law, 1, listed(short[n] - 1)).tolist() == [n]
        assert exact._blocks(law, 1, listed(short[n] + 1)).tolist() == [n + 1]
    assert exact._blocks(law, 1, listed(2**64 - 1, 0))[0] == len(short) - 1
    assert exact._blocks(law, 1, listed(2**64 - 1, 2**64 - 1, 0))[0] > len(short)


def test_uniform_numbers_throw_away_what_is_left_over():
    for bound in (1, 2, 3, 100, 2**49, 2**62 + 1):
        piece = (2**64 - 1) // bound
        assert exact._below(bound, 1, listed(piece * bound - 1)).tolist() == [bound - 1]
        assert exact._below(bound, 1, listed(piece * bound, 0)).tolist() == [0]  # drawn anew
        assert exact._below(bound, 1, listed(0)).tolist() == [0]
    for bound in (0, 2**63):
        with pytest.raises(OverflowError, match="no uniform numbers"):
            exact._below(bound, 1, system_bits)


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 1), (1, 2), (3, 10), (2**48, 2**49), (2**49, 2**49)])
def test_survival_has_its_probability(top, bottom):
    kept = exact._survives(np.full(200_000, top, np.uint64), bottom, fed(6))
    chance = math.exp(-top / bottom)
    assert abs(kept.mean() - chance) <= 5 * math.sqrt(chance * (1 - chance) / 200_000)


def test_extremes():
    for law in ("gaussian", "laplace"):
        for scale in (1, np.int32(3), np.uint64(LARGEST)):
            for size in (0, 1, 2, exact.CHUNK - 1, exact.CHUNK + 1):
                assert draws(law, scale, size).shape == (size,)
        rarest = exact._thresholds(law, 64)[-1]
        far = getattr(exact, f"discrete_{law}")(LARGEST, 1, listed(*[rarest] * 10))  # ties, then places 2**24 - 1
        assert far.dtype == np.int64


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
@pytest.mark.parametrize("scale", [0, -1, LARGEST + 1, 2**70, 2.5, 4.0, math.inf, math.nan, "3", None, True])
def test_other_scales_are_refused_with_what_to_change(draw, scale):
    with pytest.raises(InputError, match=r"whole number of grid steps from 1 to 16777216.*privacy\.grid_exponent"):
        draw(scale, 3)


@pytest.mark.parametrize("size", [-1, 2.5, "3"])
def test_other_sizes_are_a_fault_of_the_caller(size):
    with pytest.raises((ValueError, TypeError)):
        discrete_gaussian(3, size)


@pytest.mark.parametrize("bits", [0, b"seed", random.Random(0), secrets, np.random.default_rng(0), np.random.PCG64(0)])
def test_nothing_seeded_is_taken_for_the_systems_bits(bits):
    for draw in (discrete_gaussian, discrete_laplace):
        with pytest.raises(TypeError, match=r"privacy\.exact\.Bits alone"):
            draw(3, 3, bits)


def test_the_systems_bits_are_urandom_and_no_two_calls_are_alike(monkeypatch):
    seen = [discrete_gaussian(LARGEST, 8).tobytes() for _ in range(50)]
    seen += [discrete_laplace(LARGEST, 8).tobytes() for _ in range(50)]
    assert len(set(seen)) == 100
    asked = []
    monkeypatch.setattr(exact.os, "urandom", lambda count: asked.append(count) or secrets.token_bytes(count))
    np.random.seed(0)  # noqa: NPY002
    discrete_gaussian(100, 10)
    assert sum(asked) >= 10 * 3 * 8


def tree_names(tree):
    for node in ast.walk(tree):
        yield from (name for name in (getattr(node, "id", None), getattr(node, "attr", None)) if name)
        if isinstance(node, ast.alias):
            yield from node.name.split(".")


def test_no_floating_point_is_in_the_sampler():
    tree = ast.parse(SOURCE)
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float | complex))
        assert not isinstance(node, ast.Div)
    floats = {"float", "complex", "math", "cmath", "random", "divide", "true_divide", "reciprocal", "power", "linspace"}
    floats |= {"exp", "expm1", "log", "log1p", "log2", "sqrt", "mean", "std", "var", "double", "half", "longdouble"}
    found = {name for name in tree_names(tree) if name in floats or name.startswith(("float", "complex"))}
    assert not found
    whole = exact.discrete_laplace(7, 100)
    assert np.issubdtype(whole.dtype, np.integer)


def test_no_code_of_the_product_feeds_bits():
    for room in ("privacy", "edge", "cloud", "export", "edgefr"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            if path.name == "exact.py" or "exact" not in text:
                continue
            tree = ast.parse(text)
            assert "Bits" not in set(tree_names(tree)), path
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                if name in ("discrete_gaussian", "discrete_laplace") and "exact" in ast.unparse(call.func):
                    assert len(call.args) == 2, path
                    assert not call.keywords, path


@BOTH
def test_draws_have_their_law_number_by_number(law):
    """At scale 50 every single value from -60 to 60, which coarser ranges would blur."""
    found = draws(law, 50, 1_000_000, seed=2)
    edges = np.arange(-60, 62)
    inside = found[(found >= -60) & (found <= 60)]
    expected = masses(law, 50, np.concatenate([[-10_000], edges, [10_000]]))[1:-1]
    counts = np.histogram(inside, edges)[0]
    assert stats.chisquare(counts, expected * len(inside) / expected.sum()).pvalue > ALPHA


@BOTH
def test_last_digits_of_a_wide_law_are_uniform(law):
    found = np.abs(draws(law, 1 << 20, 400_000, seed=3))
    for modulus in (3, 256, 1000):
        assert stats.chisquare(np.bincount(found % modulus, minlength=modulus)).pvalue > ALPHA


@BOTH
def test_opendp_draws_the_same_law(law):
    opendp = pytest.importorskip("opendp.prelude", reason="opendp is 265 MB, an extra of its own")
    opendp.enable_features("contrib")
    distance = opendp.l2_distance(T="i64") if law == "gaussian" else opendp.l1_distance(T="i64")
    make = opendp.m.make_gaussian if law == "gaussian" else opendp.m.make_laplace
    other = np.array(make(opendp.vector_domain(opendp.atom_domain(T="i64")), distance, scale=5.0)([0] * 30_000))
    own = draws(law, 5, 30_000, seed=5)
    counts = np.stack([np.bincount(np.clip(found + 12, 0, 24), minlength=25) for found in (own, other)])
    assert stats.chi2_contingency(counts[:, counts.sum(axis=0) > 20]).pvalue > ALPHA


def test_a_value_takes_less_than_a_microsecond_and_memory_is_bounded():
    for draw in (discrete_gaussian, discrete_laplace):
        seconds = []
        for _ in range(3):
            started = time.process_time()
            draw(LARGEST, 200_000)
            seconds.append(time.process_time() - started)
        assert min(seconds) < 0.2
        tracemalloc.start()
        draw(50, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8_000_000 + 4_000_000
