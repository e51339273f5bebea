"""Releases have fewer values by a public random projection of the joint vector of d values to k.

It is clipped and noised after the projection; the server takes the sum back. Both sides make the projection from a key
that is no secret: privacy comes from clip and noise alone. The clip after it bounds what is released, so the
sensitivity is that of the clip whatever the projection does to norms.

The projection is a count sketch (Charikar, Chen & Farach-Colton 2002) with buckets of equal size: every coordinate has
a random sign and one of k buckets, and a bucket is the sum of its coordinates. It touches each value that is not zero
once, and never makes an L1 norm longer. Taking it there and back is unbiased over keys, with a squared error of
(d / k - 1) times the vector's where k divides d, so a fresh key for each round lets the errors of rounds cancel.

What it gains: bytes, and under an L1 clip noise (a vector of L2 norm 1 has an L1 norm of up to sqrt(d), its projection
one of up to sqrt(k)). Under an L2 clip it gains no accuracy: clip and noise per value stay what they were, and back on
d coordinates the noise has the energy of noise on each of them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privacy import keyed
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PURPOSE = "project"
"""What keys a projection: a string that a later renaming may not touch."""


@dataclass(frozen=True)
class Projection:
    """This is a public linear map from `size` to `kept` values; `key` decides it, e.g. `of_round`.

    >>> projection = Projection(keyed.key(0, "doctest"), size=5, kept=4)
    >>> projection.forth(np.ones((3, 5))).shape, projection.back(np.ones(4)).shape
    ((3, 4), (5,))
    """

    key: int
    size: int
    kept: int

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.size:
            raise InputError(
                f"a projection keeps 1 to {self.size} values, as many as the update has; got {self.kept}: "
                "set privacy.project to fewer"
            )

    @classmethod
    def of_round(cls, seed: int, number: int, size: int, kept: int) -> "Projection":
        """The projection of round `number` of a run: on the server and on every device."""
        return cls(keyed.key(seed, PURPOSE, number), size, kept)

    @cached_property
    def buckets(self) -> Ints:
        """Return where each coordinate goes: int64 [size]; every bucket has floor or ceil of size / kept of them."""
        order = np.argsort(keyed.fold(int(keyed.bits(self.key, self.size)), np.arange(self.size)), kind="stable")
        out = np.empty(self.size, np.int64)
        out[order] = np.arange(self.size) % self.kept
        return out

    @cached_property
    def signs(self) -> Floats:
        """Return 1 or -1 for each coordinate: float64 [size]."""
        return np.where(keyed.integers(self.key, np.arange(self.size), 2) == 1, -1.0, 1.0)

    def forth(self, vectors: npt.ArrayLike) -> Floats:
        """Return what the device computes: [..., size] to float64 [..., kept]."""
        values = np.asarray(vectors, dtype=np.float64)
        if values.shape[-1] != self.size:
            raise ValueError(f"vectors of {values.shape[-1]} values instead of {self.size}")
        flat = values.reshape(-1, self.size)
        out = np.zeros((len(flat), self.kept))
        for vector, into in zip(flat, out, strict=True):
            into += self.of_some(np.arange(self.size), vector)
        return out.reshape(*values.shape[:-1], self.kept)

    def of_some(self, places: Ints, values: npt.ArrayLike) -> Floats:
        """Project a vector of which only `values` [n] at `places` [n] are not zero: float64 [kept]."""
        given = np.asarray(values, dtype=np.float64) * self.signs[places]
        out: Floats = np.bincount(self.buckets[places], weights=given, minlength=self.kept).astype(np.float64)
        return out

    def back(self, total: npt.ArrayLike) -> Floats:
        """Return what the server computes from the sum, the transposed map: [..., kept] to float64 [..., size]."""
        values = np.asarray(total, dtype=np.float64)
        if values.shape[-1] != self.kept:
            raise ValueError(f"vectors of {values.shape[-1]} values instead of {self.kept}")
        return values[..., self.buckets] * self.signs
