"""This says on which device torch computes, with how many threads, and how its numbers and memory are kept."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep to one maths thread: small products gain nothing from more, and sums keep their order on any machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


KEPT_BLOCK = 2**25 - 2**16
"""Bytes of the block that sets glibc's limits: just below the largest that it learns from."""


@functools.cache
def keep_memory() -> None:
    """Let glibc keep what shards free: else every big array is new memory, whose first touch costs more than its use.

    Its limits for handing memory back follow the largest block freed so far, at most 32 MiB. Elsewhere it does nothing.
    """
    import torch

    torch.empty(KEPT_BLOCK, dtype=torch.uint8)


@contextmanager
def tiny_as_zero() -> Iterator[None]:
    """Take numbers below 1.2e-38 for zeros in this thread: processors are many times slower on them.

    Saturated gates and squares of small gradients make them. A processor that cannot, goes on with them.
    """
    import torch

    before = bool((torch.tensor(1e-30) * 1e-10).item() == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
