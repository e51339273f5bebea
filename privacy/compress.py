"""Releases with fewer values: under noise on every coordinate, what a small cohort can learn falls with their number.

A public random projection takes the joint vector of d values to k, where it is clipped and noised; the server takes the
sum back. Both sides make it from a key that is no secret: privacy comes from clip and noise alone. The clip after the
projection bounds what is released, so the sensitivity is that of the clip whatever the projection does to norms.

The projection is a subsampled randomised Hadamard transform (Ailon & Chazelle 2009; Tropp 2011): random signs, the
orthonormal Walsh-Hadamard transform of size D = 2 ** ceil(log2 d), and k of its D values times sqrt(D / k). It needs
O(D log D) operations and no matrix. Taking it there and back is unbiased over keys, with a squared error of about
(D / k - 1) times the vector's, so a fresh key for each round lets the errors of rounds cancel.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privacy import keyed
from privacy.clip import clip_factors, joint_norms
from privacy.errors import InputError
from privacy.settings import Norm

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """A public linear map from `size` to `kept` values; `key` decides it, e.g. ``keyed.key(seed, "project", round)``.

    >>> projection = Projection(keyed.key(0, "doctest"), size=5, kept=4)
    >>> projection.forth(np.ones((3, 5))).shape, projection.back(np.ones(4)).shape
    ((3, 4), (5,))
    """

    key: int
    size: int
    kept: int

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.size:
            raise InputError(f"a projection keeps 1 to {self.size} values, the size of a release; got {self.kept}")

    @property
    def padded(self) -> int:
        """D, the size of the transform: the power of two from `size` on."""
        return 1 << (self.size - 1).bit_length()

    def forth(self, vectors: npt.ArrayLike) -> Floats:
        """What the device computes: [..., size] to float64 [..., kept]."""
        values = np.asarray(vectors, dtype=np.float64)
        if values.shape[-1] != self.size:
            raise ValueError(f"vectors of {values.shape[-1]} values instead of {self.size}")
        whole = np.zeros((*values.shape[:-1], self.padded))
        whole[..., : self.size] = values * self._signs()
        return _hadamard(whole)[..., self._rows()] * math.sqrt(self.padded / self.kept)

    def back(self, total: npt.ArrayLike) -> Floats:
        """What the server computes from the sum, the transposed map: [..., kept] to float64 [..., size]."""
        values = np.asarray(total, dtype=np.float64)
        if values.shape[-1] != self.kept:
            raise ValueError(f"vectors of {values.shape[-1]} values instead of {self.kept}")
        whole = np.zeros((*values.shape[:-1], self.padded))
        whole[..., self._rows()] = values * math.sqrt(self.padded / self.kept)
        return _hadamard(whole)[..., : self.size] * self._signs()

    def _signs(self) -> Floats:
        return np.where(keyed.integers(self.key, np.arange(self.size), 2) == 1, -1.0, 1.0)

    def _rows(self) -> npt.NDArray[np.int64]:
        return keyed.choose(int(keyed.bits(self.key, self.size)), np.arange(self.padded), self.kept)


def compressed(updates: npt.ArrayLike, projection: Projection, bound: float, norm: Norm) -> Floats:
    """Joint updates [C, size] as the releases before noise: projected, then clipped to `bound`: float64 [C, kept].

    A client whose update is not finite, or has diverged, releases zeros. Sensitivity: 2 `bound` local, `bound` central,
    as for any clipped update.

    >>> made = compressed(np.full((1, 8), 9.0), Projection(1, 8, 4), 1.0, "l2")
    >>> round(float(np.linalg.norm(made)), 4) <= 1.0
    True
    """
    values = np.asarray(updates, dtype=np.float64)
    sound = np.isfinite(values).all(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge values; such a client is dropped
        short = projection.forth(np.where(sound, values, 0.0))
        factors = clip_factors(joint_norms([short], norm), bound)[:, None]
        return np.where(factors > 0, short * factors, 0.0)


def _hadamard(values: Floats) -> Floats:
    """The orthonormal Walsh-Hadamard transform of the last dimension, a power of two; it is its own inverse."""
    size = values.shape[-1]
    out = values.reshape(-1, size)
    width = 1
    while width < size:
        pairs = out.reshape(len(out), -1, 2, width)
        out = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(-1, size)
        width *= 2
    return (out / math.sqrt(size)).reshape(values.shape)
