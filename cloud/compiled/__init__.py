"""Functions of hot loops are compiled to machine code at their first call, and kept on disk for later processes.

The disk knows of a function what stands in its folder, and in this one: what it calls has to stand there too, or here.

Owns: when and where machine code is kept. Does not own: the loops themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privacy.files import cache_dir
from privacy.progress import MACHINE_CODE, aside

with MACHINE_CODE:
    import numba
    from numba import njit
    from numba.core import event
    from numba.core.caching import FunctionCache
    from numba.core.runtime import rtsys

OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": False}
"""Every operation is the one that is written, in its order: the same bits on every machine.

What is not said here is taken from who calls it first: from a function whose sums may be reordered, that too.
"""

REORDERED: dict[str, Any] = {**OPTIONS, "fastmath": {"contract", "reassoc", "nsz", "arcp"}}
"""Sums may be taken in another order; numbers that are not finite stay what they are, so that divergence is seen."""
INLINED: dict[str, Any] = {**OPTIONS, "inline": "always"}
"""It becomes a part of who calls it: a call costs more than a short loop."""
KEPT = "to machine code, once on this machine"
NOT_KEPT = "to machine code, in every process: no folder to keep it in can be written"


class CompileNotice(event.Listener):  # type: ignore[misc]
    """This says, with a `note`, that a function is being compiled, which takes seconds."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done = 0
        self.note = KEPT

    def on_start(self, event: Any) -> None:
        MACHINE_CODE.__enter__()
        if event.data["dispatcher"].py_func.__qualname__ in self.names:
            self._tell()

    def on_end(self, event: Any) -> None:
        MACHINE_CODE.__exit__()
        if event.data["dispatcher"].py_func.__qualname__ in self.names:
            self.done += 1
            self._tell()

    def _tell(self) -> None:
        aside("compile", min(self.done, len(self.names)), len(self.names), self.note)


class MachineCode(FunctionCache):  # type: ignore[misc]
    """This is a function's machine code on the disk, which is read without all that numba would compile it with."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept for a signature, None where nothing is: whatever compiles it makes itself ready first."""
        with MACHINE_CODE, self._guard_against_spurious_io_errors():
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)


TOLD = CompileNotice()
event.register("numba:compile", TOLD)

LANES = 8
"""Sums that a product of vectors is added up in, on every machine: wider registers hold two, narrower ones a half."""


def compiled(function: Callable[..., Any], options: dict[str, Any] = OPTIONS) -> Callable[..., Any]:
    """Return a function of arrays and numbers compiled to machine code, for one thread.

    It is kept in the user's cache; where that cannot be written, every process compiles it again.
    """
    TOLD.names.append(function.__qualname__)
    folder = Path(function.__code__.co_filename).parent
    files = (*sorted(Path(__file__).parent.glob("*.py")), *sorted(folder.glob("*.py")))
    content = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    config: Any = numba.config
    before, made = config.CACHE_DIR, njit(**options)(function)
    config.CACHE_DIR = str(cache_dir() / "compiled" / content.hexdigest()[:16])
    try:
        made._cache = MachineCode(function)
    except (RuntimeError, OSError):  # there is nowhere to keep it
        TOLD.note = NOT_KEPT
    finally:
        config.CACHE_DIR = before
    return made


def reordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled as by `compiled`, whose sums may be taken in another order on another machine."""
    return compiled(function, REORDERED)
