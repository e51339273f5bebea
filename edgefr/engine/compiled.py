"""Functions of hot loops are compiled to machine code at their first call, and kept on disk for later processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

from edgefr.watching import aside

OPTIONS: dict[str, Any] = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}, "error_model": "numpy"}
"""Sums may be taken in another order; numbers that are not finite stay what they are, so that divergence is seen."""
KEPT = "to machine code, once on this machine"
NOT_KEPT = "to machine code, in every process: no folder to keep it in can be written"


class Told(event.Listener):  # type: ignore[misc]
    """This says that a function is being compiled, which takes seconds; one that was kept on disk is not.

    `note`: what is said beside it.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done = 0
        self.note = KEPT

    def on_start(self, event: Any) -> None:
        """Say that a function is under way, if it is one of ours."""
        if event.data["dispatcher"].py_func.__qualname__ in self.names:
            self._tell()

    def on_end(self, event: Any) -> None:
        """Say that it is done."""
        if event.data["dispatcher"].py_func.__qualname__ in self.names:
            self.done += 1
            self._tell()

    def _tell(self) -> None:
        aside("compile", min(self.done, len(self.names)), len(self.names), self.note)


TOLD = Told()
event.register("numba:compile", TOLD)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays and numbers compiled to machine code, for one thread.

    Where neither the package's folder nor the user's cache can be written, every process compiles it again.
    """
    TOLD.names.append(function.__qualname__)
    try:
        kept: Callable[..., Any] = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # there is nowhere to keep it
        kept, TOLD.note = njit(**OPTIONS)(function), NOT_KEPT
    return kept
