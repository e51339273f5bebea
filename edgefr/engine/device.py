"""This says on which device torch computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privacy.errors import InputError, unknown

if TYPE_CHECKING:
    import torch


def torch_device(name: str) -> torch.device:
    """Return the torch device for auto, cpu or cuda. Raises `InputError` for others, and for a missing cuda."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device was found; use --device cpu or --device auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
