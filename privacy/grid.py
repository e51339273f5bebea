"""Updates and noise lie on a grid: whole multiples of a power of two, so that no sum of them is ever rounded.

Noise in floating point leaks through which values it can take (Mironov, CCS 2012). Here a clipped value is rounded to
the grid first, and the noise is a whole number of steps. Rounding is toward zero: no value gets longer, so the clip's
bound on any norm holds as it is, and rounding costs no privacy.
"""

import math

import numpy as np
import numpy.typing as npt

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


def step_for(clip: float, fineness: int = FINENESS) -> float:
    """Return the grid of updates clipped to `clip`: 2 ** -`fineness` of it or a little less, a power of two.

    A million values of equal length are then some 30 steps each, and noise of up to 512 clips fits 32-bit numbers.

    >>> step_for(1.0) == 2.0**-15, step_for(0.3) == 2.0**-17
    (True, True)
    """
    return 2.0 ** (math.floor(math.log2(clip)) - fineness)
