"""Updates and noise lie on a grid: whole multiples of a power of two, so that no sum of them is ever rounded.

Noise in floating point leaks through which values it can take (Mironov, CCS 2012). Here a clipped value is rounded to
the grid first, and the noise is a whole number of steps. Rounding is toward zero: no value gets longer, so the clip's
bound on any norm holds as it is, and rounding costs no privacy.
"""

import math

import numpy as np
import numpy.typing as npt

from privacy import keyed

Floats = npt.NDArray[np.float64]
LARGEST = 2.0**52  # in steps: sums of such numbers are still whole in float64
FINENESS = 15  # powers of two between a clip and the grid that is chosen for it
LONGEST_SCALE = 2**24  # in steps: of noise whose values fit in 32 bits


def to_grid(values: npt.ArrayLike, step: float) -> Floats:
    """Return the multiples of `step` (a power of two) next to the values toward zero: float64, same shape.

    Raises `ValueError` for values that are not finite or have more than 2 ** 52 steps.

    >>> to_grid([0.3, -0.1, 0.125, -0.5], 0.25).tolist()
    [0.25, -0.0, 0.0, -0.5]
    """
    steps = np.trunc(np.asarray(values, dtype=np.float64) / step)
    if not np.all(np.abs(steps) <= LARGEST):
        raise ValueError("only finite values of at most 2 ** 52 steps can be put on the grid")
    return steps * step


def step_for(clip: float) -> float:
    """Return the grid of updates clipped to `clip`: 2 ** -15 of it or a little less, a power of two.

    A million values of equal length are then some 30 steps each, and noise of up to 512 clips fits 32-bit numbers.

    >>> step_for(1.0) == 2.0**-15, step_for(0.3) == 2.0**-17
    (True, True)
    """
    return 2.0 ** (math.floor(math.log2(clip)) - FINENESS)


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


def discrete_laplace(first: keyed.UInts, second: keyed.UInts, scale: float, step: float) -> Floats:
    """Make discrete Laplace noise of pairs of random words: the floor of an exponential number is geometric."""
    up, down = (np.floor(-np.log1p(-keyed.as_uniform(words)) * (scale / step)) for words in (first, second))
    return (up - down) * step


def sum_of_discrete_gaussian(scale: float, step: float, counts: Floats, generator: np.random.Generator) -> Floats:
    """Simulate the sum of `counts` discrete Gaussian draws per coordinate: shape of `counts`.

    It is a normal number rounded to the grid, whose law differs from the sum's by less than a simulation can show.
    """
    drawn = generator.standard_normal(counts.shape)
    drawn *= np.sqrt(once(counts))
    drawn *= scale / step
    np.rint(drawn, out=drawn)
    drawn *= step
    return drawn


def once(counts: Floats) -> Floats:
    """Return what stands for `counts` in a product: one number where all places share it, which is taken once then.

    >>> once(np.broadcast_to(np.float64(4.0), (3, 2))).shape
    (1, 1)
    """
    return counts[tuple(slice(1) if stride == 0 else slice(None) for stride in counts.strides)]


def discrete_gaussian(first: keyed.UInts, second: keyed.UInts, scale: float, step: float) -> Floats:
    """Make simulated discrete Gaussian noise of pairs of random words, as `sum_of_discrete_gaussian`."""
    return np.rint(keyed.as_normal(first, second) * (scale / step)) * step
