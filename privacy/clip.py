"""This clips a client's whole update."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError
from privacy.mechanism import Norm

Floats = npt.NDArray[np.float64]

# A clipped norm lands on bound * (1 - 2**-20) and one below bound * (1 - 2**-21) is left alone, so that the
# float32 product of value and factor stays within the bound, and clipping twice changes nothing.
TARGET = 1.0 - 2.0**-20
UNTOUCHED = 1.0 - 2.0**-21
# Below this a float32 factor loses digits: such an update has diverged, and it is dropped like a non-finite
# one.
SMALLEST_FACTOR = 2.0**-126


def joint_norms(parts: Sequence[npt.ArrayLike], norm: Norm) -> Floats:
    """Return the norm of each client's whole update, over all its tensors together: float64 [C].

    Every part is [C, ...], the clients' values of one tensor; a part may also be [C], the norms of a tensor
    already taken (of a client's touched rows, say), since the norm of norms is the joint norm. No overflow or
    underflow for any finite input short of a norm above 1.8e308; a client with a value that is not finite
    gets nan or inf.

    >>> joint_norms([np.array([[3.0, 0.0], [1.0, 0.0]]), np.array([4.0, 0.0])], "l2").tolist()
    [5.0, 1.0]
    """
    flat = [np.abs(np.asarray(part, dtype=np.float64)).reshape(len(np.asarray(part)), -1) for part in parts]
    with np.errstate(over="ignore", invalid="ignore"):
        return _JOINT[norm](flat)


def _l1(parts: Sequence[Floats]) -> Floats:
    return np.asarray(np.sum([part.sum(axis=1) for part in parts], axis=0))


def _l2(parts: Sequence[Floats]) -> Floats:
    largest = np.max([part.max(axis=1, initial=0.0) for part in parts], axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # values are divided by it, so that no square leaves the range
    squares = np.sum([np.square(part / unit[:, None]).sum(axis=1) for part in parts], axis=0)
    return np.where(np.isfinite(largest), largest * np.sqrt(squares), largest)


_JOINT: Mapping[str, Callable[[Sequence[Floats]], Floats]] = {"l1": _l1, "l2": _l2}


def clip_factors(norms: npt.ArrayLike, bound: float) -> Floats:
    """Return what each client's update is multiplied by so that its norm is at most `bound`: float64 [C], in [0, 1].

    0 marks a client to drop: its norm is not finite, or so large that it has diverged. Put zeros in place of
    such an update, do not multiply it (0 * inf is nan), and count it. Take `norms` in float64. Raises
    `InputError` when the bound is not a positive number.

    >>> clip_factors([0.5, np.nan], 1.0).tolist()
    [1.0, 0.0]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(factors_by(np, np.asarray(norms, dtype=np.float64), bound))


def factors_by(library: Any, norms: Any, bound: float) -> Any:
    """Return `clip_factors` of norms that are there, float64 [C], by the functions of `library`: of numpy, or torch."""
    if not (math.isfinite(bound) and bound > 0):
        raise InputError(f"the clip must be a positive number, got {bound}")
    factors = library.where(norms <= bound * UNTOUCHED, 1.0, bound * TARGET / norms)
    return library.where(library.isfinite(norms) & (factors >= SMALLEST_FACTOR), factors, 0.0)


def clip(vector: npt.ArrayLike, bound: float, norm: Norm) -> npt.NDArray[np.floating]:
    """Clip one client's update, as one vector, to `bound`: same shape and dtype; zeros if dropped.

    >>> clip(np.array([3.0, 4.0]), 1.0, "l1").round(3).tolist()
    [0.429, 0.571]
    """
    values = np.asarray(vector)
    if not np.issubdtype(values.dtype, np.floating):
        values = values.astype(np.float64)
    factor = clip_factors(joint_norms([values.reshape(1, -1)], norm), bound)[0]
    if factor == 0.0:
        return np.zeros_like(values)
    return (values * values.dtype.type(factor)).reshape(values.shape)
