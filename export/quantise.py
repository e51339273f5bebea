"""Smaller numbers for smaller devices: item tables in int8 or fp16; how alike two sets of vectors are."""

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

Floats = npt.NDArray[np.float32]


def table_int8(table: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Quantise to symmetric int8, one scale per row. Values [n, w] in -127..127 and scale [n], table ~ values * scale.

    The error of a value is at most half its row's scale, which is the row's largest size / 127. A row of
    zeros keeps scale 0. Raises `InputError` for a value that is not finite.

    >>> values, scale = table_int8(np.array([[1.0, -0.5]], np.float32))
    >>> values.tolist(), round(float(scale[0]), 5)
    ([[127, -64]], 0.00787)
    """
    _finite(table)
    scale = (np.abs(table).max(axis=1, initial=0) / 127).astype(np.float32)
    safe = np.where(scale > 0, scale, np.float32(1))
    values = np.clip(np.rint(table / safe[:, None]), -127, 127).astype(np.int8)
    return values, scale


def table_fp16(table: Floats) -> npt.NDArray[np.float16]:
    """Convert to half precision; `InputError` for a value that is not finite or beyond 65,504.

    >>> table_fp16(np.array([[0.1]], np.float32)).dtype
    dtype('float16')
    """
    _finite(table)
    if np.abs(table).max(initial=0) > np.finfo(np.float16).max:
        raise InputError("an item table has values beyond 65,504, which fp16 cannot hold; train with smaller values")
    return table.astype(np.float16)


def cosine(a: Floats, b: Floats) -> Floats:
    """Return the cosine of paired rows [n]; 1 where both rows are zero."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots = (a * b).sum(axis=1)
    same: Floats = np.where(norms > 0, dots / np.where(norms > 0, norms, 1), (a == b).all(axis=1))
    return same


def _finite(table: Floats) -> None:
    if not np.isfinite(table).all():
        raise InputError(
            "an item table has values that are not finite: the model has diverged; lower the learning rate"
        )
