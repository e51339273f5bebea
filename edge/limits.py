"""Limits say how long and how large training may get.

They are asked between steps and, by `edge.watch`, within them; a step that is ended leaves nothing behind, so that
training ends in a consistent state.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from privacy.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Training may take `ram_mb`, resident memory of the process, MB (10^6 bytes), and `seconds` of one call.

    None: no limit.

    >>> Limits(seconds=60).start()() is None
    True
    """

    ram_mb: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_ram_mb", self.ram_mb), ("max_seconds", self.seconds)):
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0, got {value}")

    def start(self) -> Callable[[], str | None]:
        """Start from now, and return a function that says what is exceeded ("memory", "time"), or None."""
        began = time.monotonic()

        def exceeded() -> str | None:
            if self.seconds is not None and time.monotonic() - began > self.seconds:
                return "time"
            if self.ram_mb is not None and resident_mb() > self.ram_mb:
                return "memory"
            return None

        return exceeded


def resident_mb() -> float:
    """Return the resident memory of this process, MB; its peak where the system does not tell the present one."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def memory_bytes() -> int:
    """Return the memory of this machine, bytes; 4 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 4 << 30
