"""Limits say how long and how large training may get.

They are asked between steps and, by `edge.interrupt`, within them; a step that is ended changes nothing. Where the
system ends the process at the same limits (`edge.limited_process`), training stops before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from edge.limited_process import NOW
from privacy.errors import InputError
from privacy.machine import resident_mb

MOST = 1e9
"""MB or seconds that can be asked for, at most: more is no limit, and no system counts it."""

BEFORE = 0.85
"""Part of what is left of a limit at which training stops, where the system ends the process at the whole."""


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
            if value is not None and not 0 < value <= MOST:
                raise InputError(f"{name} must be above 0 and at most {MOST:,.0f}, got {value}; leave it out for none")
        if self.ram_mb is not None and resident_mb() is None:
            raise InputError("max_ram_mb cannot be kept: this system does not tell how much memory a process has")

    def check_room(self, what: str, megabytes: float) -> None:
        """Raise `InputError` where something takes more memory than is allowed."""
        if self.ram_mb is not None and megabytes > self.ram_mb:
            raise InputError(f"{what} take {megabytes:,.0f} MB, more than max_ram_mb {self.ram_mb:g} allows")

    def start(self) -> Callable[[], str | None]:
        """Start from now, and return a function that says what is exceeded ("memory", "time"), or None."""
        began, left = time.monotonic(), NOW.left_s
        seconds = self.seconds if left is None else min(self.seconds or left, BEFORE * left)
        ram_mb = self.ram_mb if NOW.ram_mb is None else BEFORE * NOW.ram_mb

        def exceeded() -> str | None:
            if seconds is not None and time.monotonic() - began > seconds:
                return "time"
            if ram_mb is not None and (resident_mb() or 0.0) > ram_mb:
                return "memory"
            return None

        return exceeded
