"""Functions of hot loops are compiled to machine code at their first call, and kept on disk for later processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

OPTIONS: dict[str, Any] = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}, "error_model": "numpy"}
"""Sums may be taken in another order; numbers that are not finite stay what they are, so that divergence is seen."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays and numbers compiled to machine code, for one thread.

    Where neither the package's folder nor the user's cache can be written, every process compiles it again.
    """
    try:
        kept: Callable[..., Any] = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # there is nowhere to keep it
        kept = njit(**OPTIONS)(function)
    return kept
