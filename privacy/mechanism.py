"""Noise: one client's own, and the noise of a sum of clients as one draw of its own law.

The samplers work in floating point. Their support leaks a little about the value they hide (Mironov, CCS
2012), so reports call them "float, simulation-grade".
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privacy import keyed
from privacy.errors import unknown
from privacy.settings import Kind

Floats = npt.NDArray[np.float64]

SAMPLER = "float, simulation-grade"


@dataclass(frozen=True)
class Noise:
    """Independent noise per coordinate. `scale`: the standard deviation of a Gaussian, the b of a Laplace.

    >>> round(Noise("laplace", 0.5).std, 4)
    0.7071
    """

    kind: Kind
    scale: float

    @property
    def std(self) -> float:
        """Standard deviation per coordinate."""
        return self.scale * (2.0**0.5 if self.kind == "laplace" else 1.0)


def noise_of_sum(
    kind: Kind, scale: float, count: npt.ArrayLike, shape: tuple[int, ...], generator: np.random.Generator
) -> Floats:
    """The sum of `count` independent draws per coordinate, drawn at once: float64 of `shape`.

    `count` is a whole number, or an array that broadcasts to `shape` (0: no noise there). A sum of n
    Gaussians is a Gaussian of sqrt(n) times the deviation; a sum of n Laplace draws is the difference of two
    Gamma(n) draws, since one Laplace draw is the difference of two exponentials.

    >>> noise_of_sum("laplace", 0.1, 1000, (2, 3), keyed.generator(0, "doctest")).shape
    (2, 3)
    """
    counts = np.broadcast_to(np.asarray(count, dtype=np.float64), shape)
    if np.any(counts < 0):
        raise ValueError(f"a sum cannot have {counts.min():g} terms")
    if kind == "gaussian":
        return scale * np.sqrt(counts) * generator.standard_normal(shape)
    if kind == "laplace":
        return scale * (generator.standard_gamma(counts, shape) - generator.standard_gamma(counts, shape))
    raise unknown("mechanism", kind, ("gaussian", "laplace"))


def noise_per_client(kind: Kind, scale: float, base: int, clients: npt.ArrayLike, size: int) -> Floats:
    """Each client's own noise for one upload of `size` values: float64 [C, size].

    `base` is the round's key, e.g. ``keyed.key(seed, "noise", round)``. A client's draw does not depend on
    who else is in the call.

    >>> noise_per_client("gaussian", 1.0, keyed.key(0, "noise", 3), [7, 9], 5).shape
    (2, 5)
    """
    keys = keyed.fold(base, np.asarray(clients))[:, None]
    if kind == "gaussian":
        return scale * keyed.normal(keys, np.arange(size))
    if kind == "laplace":
        return scale * keyed.laplace(keys, np.arange(size))
    raise unknown("mechanism", kind, ("gaussian", "laplace"))
