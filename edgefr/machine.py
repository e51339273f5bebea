"""This module asks the machine what there is, since systems answer in ways of their own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from privacy.errors import InputError, unknown

if TYPE_CHECKING:
    import torch


def peak_rss_mb() -> float:
    """Return the peak resident memory of this process, MB; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def torch_device(name: str) -> torch.device:
    """Return the torch device for auto, cpu or cuda.

    Raises `InputError` for other names, and for cuda where there is none.
    """
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device was found; use --device cpu or --device auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
