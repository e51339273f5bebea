"""Updates and noise lie on a grid: whole multiples of a power of two, so that no sum of them is ever rounded.

Noise in floating point leaks through which values it can take (Mironov, CCS 2012). Here a value is rounded to the grid
first, which costs sensitivity (`PrivacySettings.sensitivity_of`), and the noise is a whole number of steps. Owns:
rounding, discrete Laplace draws, OpenDP. Does not own: when to round (after the clip: `plan` refuses a grid to a caller
that does not say how many values it rounds).
"""

import importlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy import keyed
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]
LARGEST = 2.0**52  # in steps: sums of such numbers are still whole in float64


def to_grid(values: npt.ArrayLike, step: float) -> Floats:
    """Return the nearest multiples of `step` (a power of two): float64, same shape.

    Round a whole clipped update at once.

    Raises `ValueError` for values that are not finite or have more than 2 ** 52 steps.

    >>> to_grid([0.3, -0.1, 0.125], 0.25).tolist()
    [0.25, -0.0, 0.0]
    """
    steps = np.rint(np.asarray(values, dtype=np.float64) / step)
    if not np.all(np.abs(steps) <= LARGEST):
        raise ValueError("only finite values of at most 2 ** 52 steps can be put on the grid")
    return steps * step


def std_of_discrete_laplace(scale: float, step: float) -> float:
    """Return the standard deviation of noise k * step with P(k) proportional to exp(-|k| * step / scale)."""
    ratio = math.exp(-step / scale)
    return step * math.sqrt(2.0 * ratio) / -math.expm1(-step / scale)


def sum_of_discrete_laplace(scale: float, step: float, counts: Floats, generator: np.random.Generator) -> Floats:
    """The sum of `counts` discrete Laplace draws per coordinate, drawn at once: shape of `counts`.

    One draw is the difference of two geometric ones, so a sum of n is the difference of two negative binomial ones.
    """
    success = -math.expm1(-step / scale)
    terms = np.maximum(counts, 1.0)  # zero terms are not a law numpy knows
    steps = generator.negative_binomial(terms, success) - generator.negative_binomial(terms, success)
    return np.where(counts > 0, steps * step, 0.0)


def discrete_laplace(keys: npt.ArrayLike, index: npt.ArrayLike, scale: float, step: float) -> Floats:
    """Return keyed discrete Laplace noise; keys and index broadcast.

    The floor of an exponential number is geometric.
    """
    doubled = np.asarray(index).astype(np.uint64) * np.uint64(2)
    first = np.floor(-np.log1p(-keyed.uniform(keys, doubled)) * (scale / step))
    second = np.floor(-np.log1p(-keyed.uniform(keys, doubled + np.uint64(1))) * (scale / step))
    return (first - second) * step


def opendp_laplace(scale: float, step: float, shape: tuple[int, ...]) -> Floats:
    """Return one exact discrete Laplace draw per coordinate from OpenDP: its own secure bits, so no two runs are alike.

    About 30 microseconds a value. Raises `InputError` when opendp is not installed.
    """
    opendp = exact_sampler()
    opendp.enable_features("contrib")
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    mechanism = opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=scale / step)
    steps = mechanism([0] * math.prod(shape))
    return np.asarray(steps, dtype=np.float64).reshape(shape) * step


def exact_sampler() -> Any:
    """Return OpenDP's Python module. Raises `InputError` with what to install."""
    try:
        return importlib.import_module("opendp.prelude")
    except ImportError as error:
        raise InputError("sampler opendp needs opendp: pip install 'edgefr[opendp]', or use sampler grid") from error
