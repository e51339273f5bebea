"""An optimiser's step needs more than gradients: constants, and the corrections that depend on the step number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
Floats = npt.NDArray[np.float64]


def corrections(step: npt.ArrayLike, beta_2: float = BETA_2) -> tuple[Floats, Floats]:
    """Return Adam's bias corrections at step numbers that count from 1:

    (factor of the learning rate, epsilon), same shape.

    Kingma & Ba (2015), end of section 2: both corrections moved into the step's size and epsilon.

    >>> factor, epsilon = corrections(1)
    >>> round(float(factor), 4), round(float(epsilon * 1e10), 4)
    (0.3162, 3.1623)
    """
    number = np.asarray(step, np.float64)
    root = np.sqrt(1 - beta_2**number)
    return root / (1 - BETA_1**number), EPSILON * root
