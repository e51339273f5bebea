"""A sum that is all the server can reach: what secure aggregation shows, simulated, without cryptography.

Uploads are added and gone; the sum can be opened once, and only if enough clients are in it. Where the run adds central
noise, it is in what is opened. This is visibility for a simulation: it keeps honest code honest, and no process from
reading its own memory. It is not differential privacy by itself. Owns: what can be seen. Does not own: weights, noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

Floats = npt.NDArray[np.float64]
SIMULATED = "simulated, no cryptography"


@dataclass(frozen=True)
class FixedPoint:
    """The whole numbers modulo 2 ** bits that a real protocol adds; values beyond `largest` are cut to it.

    A sum of n clients fits while n * levels / 2 < 2 ** (bits - 1): `capacity`.

    >>> FixedPoint().capacity
    1023
    """

    largest: float = 8.0
    levels: int = 2**22
    bits: int = 32

    def __post_init__(self) -> None:
        if not (0 < self.largest < float("inf") and self.levels >= 2 and 2 <= self.bits <= 62 and self.capacity):
            raise InputError("fixed point needs largest above 0, 2 levels or more, and bits (to 62) that hold them")

    @property
    def capacity(self) -> int:
        """Clients whose sum cannot overflow."""
        return (2 ** (self.bits - 1) - 1) // (self.levels // 2)

    def encode(self, vector: Floats) -> npt.NDArray[np.int64]:
        """Nearest levels, int64: largest is levels / 2."""
        return np.rint(np.clip(vector, -self.largest, self.largest) / self.largest * (self.levels // 2)).astype(
            np.int64
        )

    def add(self, total: npt.NDArray[np.int64], more: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The sum modulo 2 ** bits, as signed numbers."""
        half = 1 << (self.bits - 1)
        return ((total + more + half) % (2 * half)) - half

    def decode(self, total: npt.NDArray[np.int64]) -> Floats:
        """The values that levels stand for."""
        return total.astype(np.float64) / (self.levels // 2) * self.largest


class SecureSum:
    """The sum of vectors of `size` values from at least `at_least` clients, opened once.

    `fixed_point`: add as a protocol would; None: in float64. There is no attribute that holds a part or the sum, no
    copy and no pickle of it.

    >>> total = SecureSum(2, at_least=2)
    >>> total.add(np.array([1.0, 2.0])); total.add(np.array([3.0, 4.0]), weight=0.5)
    >>> total.open().tolist()
    [2.5, 4.0]
    """

    __slots__ = ("_add", "_open")

    def __init__(self, size: int, *, at_least: int = 2, fixed_point: FixedPoint | None = None) -> None:
        if size < 0 or at_least < 1:
            raise ValueError(f"a sum of {size} values from {at_least} clients cannot be")
        self._add, self._open = _vault(size, at_least, fixed_point)

    def add(self, vector: npt.ArrayLike, weight: float = 1.0) -> None:
        """Add one client's release times its weight. Raises `ValueError` for other shapes and values not finite."""
        self._add(np.asarray(vector, dtype=np.float64), weight)

    def open(self, noise: Callable[[tuple[int, ...]], Floats] | None = None) -> Floats:
        """The sum, float64 [size], plus `noise` of that shape; the sum is gone then.

        Raises `InputError` where it was opened before or fewer than `at_least` clients are in it: nothing is opened.
        """
        return self._open(noise)

    def __reduce__(self) -> str:
        raise TypeError("a secure sum cannot be copied or written: it is opened once")


def _vault(
    size: int, at_least: int, fixed_point: FixedPoint | None
) -> tuple[Callable[[Floats, float], None], Callable[[Callable[[tuple[int, ...]], Floats] | None], Floats]]:
    """The two things one can do with a sum that no name reaches."""
    total: npt.NDArray[Any] = np.zeros(size) if fixed_point is None else np.zeros(size, np.int64)
    clients, opened = 0, False

    def add(vector: Floats, weight: float) -> None:
        nonlocal total, clients
        if opened:
            raise InputError("this sum was opened; the next round needs a new one")
        if vector.shape != (size,):
            raise ValueError(f"a release has shape {vector.shape}, not ({size},)")
        part = vector * weight
        if not np.isfinite(part).all():
            raise ValueError("a release is not finite: drop the client")
        total = total + part if fixed_point is None else fixed_point.add(total, fixed_point.encode(part))
        clients += 1

    def open_once(noise: Callable[[tuple[int, ...]], Floats] | None) -> Floats:
        nonlocal total, opened
        if opened:
            raise InputError("this sum was opened before; a round's sum is opened once")
        if clients < at_least:
            raise InputError(f"the sum of {clients} clients stays closed: {at_least} are needed, so that none is seen")
        opened = True
        found: Floats = total if fixed_point is None else fixed_point.decode(total)
        total = np.zeros(0)
        return found if noise is None else found + noise((size,))

    return add, open_once
