"""Noise: one client's own, and the noise of a sum of clients as one draw of its own law.

Each sampler says how far to trust it (`TRUST`). The one in floating point leaks a little about the value it hides
(Mironov, CCS 2012): it is for simulation. Owns: laws of noise and their draws. Does not own: rounding (`grid`), what
noise is worth (`guarantee`).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from privacy import keyed
from privacy.errors import unknown
from privacy.grid import discrete_laplace, opendp_laplace, std_of_discrete_laplace, sum_of_discrete_laplace
from privacy.settings import Kind

Floats = npt.NDArray[np.float64]
Sampler = Literal["float", "grid", "opendp"]

TRUST: dict[Sampler, str] = {
    "float": "float, simulation-grade",
    "grid": "grid, safe in which values it can take; keyed bits, so simulation-grade in its randomness",
    "opendp": "OpenDP on a grid, exact; not keyed, so no two runs are alike",
}
LAWS: tuple[Kind, ...] = ("gaussian", "laplace", "discrete-laplace")


@dataclass(frozen=True)
class Noise:
    """Independent noise per coordinate. `scale`: the standard deviation of a Gaussian, the b of a Laplace.

    `step`: of the grid (None: none), to which whoever adds the noise has rounded first (`grid.to_grid`).

    >>> round(Noise("laplace", 0.5).std, 4)
    0.7071
    """

    kind: Kind
    scale: float
    step: float | None = None
    sampler: Sampler = "float"

    @property
    def std(self) -> float:
        """Standard deviation per coordinate."""
        if self.kind == "discrete-laplace":
            assert self.step is not None
            return std_of_discrete_laplace(self.scale, self.step)
        return self.scale * (2.0**0.5 if self.kind == "laplace" else 1.0)

    def of_sum(self, count: npt.ArrayLike, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        """`noise_of_sum` by this noise's sampler (OpenDP: `count` is one number, and every term is drawn)."""
        if self.sampler == "opendp":
            assert self.step is not None
            draws = (opendp_laplace(self.scale, self.step, shape) for _ in range(int(np.asarray(count).item())))
            return sum(draws, np.zeros(shape))
        return noise_of_sum(self.kind, self.scale, count, shape, generator, self.step)


def noise_of_sum(
    kind: Kind,
    scale: float,
    count: npt.ArrayLike,
    shape: tuple[int, ...],
    generator: np.random.Generator,
    step: float | None = None,
) -> Floats:
    """The sum of `count` independent draws per coordinate, drawn at once: float64 of `shape`.

    `count` is a whole number, or an array that broadcasts to `shape` (0: no noise there). A sum of n
    Gaussians is a Gaussian of sqrt(n) times the deviation; a sum of n Laplace draws is the difference of two
    Gamma(n) draws, since one Laplace draw is the difference of two exponentials. On a grid of `step` a Gaussian draw is
    rounded, which has no such law: its n terms are drawn one by one.

    >>> noise_of_sum("laplace", 0.1, 1000, (2, 3), keyed.generator(0, "doctest")).shape
    (2, 3)
    """
    _check(kind, step)
    counts = np.broadcast_to(np.asarray(count, dtype=np.float64), shape)
    if np.any(counts < 0):
        raise ValueError(f"a sum cannot have {counts.min():g} terms")
    if step is not None and kind == "discrete-laplace":
        return sum_of_discrete_laplace(scale, step, counts, generator)
    if step is not None:
        return _sum_of_rounded_gaussians(scale, step, counts, generator)
    if kind == "gaussian":
        return scale * np.sqrt(counts) * generator.standard_normal(shape)
    return scale * (generator.standard_gamma(counts, shape) - generator.standard_gamma(counts, shape))


def _sum_of_rounded_gaussians(scale: float, step: float, counts: Floats, generator: np.random.Generator) -> Floats:
    total = np.zeros(counts.shape)
    for term in range(int(counts.max(initial=0.0))):
        total += np.where(counts > term, np.rint(generator.standard_normal(counts.shape) * (scale / step)), 0.0)
    return total * step


def noise_per_client(
    kind: Kind, scale: float, base: int, clients: npt.ArrayLike, size: int, step: float | None = None
) -> Floats:
    """Each client's own noise for one upload of `size` values: float64 [C, size].

    `base` is the round's key, e.g. ``keyed.key(seed, "noise", round)``. A client's draw does not depend on
    who else is in the call.

    >>> noise_per_client("gaussian", 1.0, keyed.key(0, "noise", 3), [7, 9], 5).shape
    (2, 5)
    """
    _check(kind, step)
    keys = keyed.fold(base, np.asarray(clients))[:, None]
    if step is not None and kind == "discrete-laplace":
        return discrete_laplace(keys, np.arange(size), scale, step)
    if step is not None:
        return np.rint(keyed.normal(keys, np.arange(size)) * (scale / step)) * step
    if kind == "gaussian":
        return scale * keyed.normal(keys, np.arange(size))
    return scale * keyed.laplace(keys, np.arange(size))


def _check(kind: Kind, step: float | None) -> None:
    """Refuse a law that is unknown, and one that does not go with being on a grid or not."""
    if kind not in LAWS:
        raise unknown("mechanism", kind, LAWS)
    if kind != "gaussian" and (kind == "discrete-laplace") != (step is not None):
        raise ValueError(f"{kind} noise {'needs a grid' if step is None else 'is not on a grid'}")
